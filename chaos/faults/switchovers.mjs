import { setTimeout as sleep } from 'node:timers/promises';

// Another server replaces a database's writer, and the writer's address moves to it.

/** Time for a holder to get its lock, in ms. */
const GRANTED = 700;
/** Longer than the fault, which ends the hold. */
const HOLD = 60_000;
/** With this many acts, the history shows about five times a second what the holder believes. */
const ACTS = 300;
/** A statement that waits for the standby times out after half a second. Then its outcome is looked up. */
const UNACKNOWLEDGED = 2_500;
/** For how long both processes may believe they hold the lock. */
const BOTH = 2_000;
/** Time for the holder's last acts to be recorded. */
const LAST_ACTS = 300;

/** A worker takes a lock and keeps it until `compete` has let another worker request it. */
function hold({ fleet, worker, subject: { recovery }, random }) {
  const holder = random.pick(fleet.members.filter((member) => member !== worker));
  const about = { key: `switched:${worker.name}`, mode: 'exclusive', isExtra: true };
  fleet.send(holder, 'hold', { section: { ...about, wait: recovery, length: HOLD, acts: ACTS } });
  return { holder, about };
}

async function compete({ fleet, worker, server, holder, about }) {
  for (const { proxies } of fleet.members) for (const proxy of proxies) proxy.leadTo(server.port);
  // One process reconnects and reaches the new writer. The fault decides which server the others stay connected to.
  for (const proxy of worker.proxies) proxy.resetAll();
  fleet.send(worker, 'add', { sections: [{ ...about, wait: HOLD, length: 0 }] });
  await sleep(BOTH);
  fleet.send(holder, 'letGo', about);
  await sleep(LAST_ACTS);
}

/**
 * An operator makes the writer read-only, promotes its replica once it has caught up, and moves the address. The old
 * writer and its connections stay alive. Some operators wait for a session guard before they promote, as the
 * documentation requires.
 */
export const gracefulSwitchover = {
  name: 'graceful switchover',
  async prepare(context) {
    Object.assign(context, hold(context));
    await sleep(GRANTED);
    await context.server.makeReadOnly();
  },
  async begin(context) {
    const { subject, server, random } = context;
    if (random.chance(0.5)) await sleep(subject.lifetime);
    await server.promote();
    await compete(context);
    await server.replaceOld();
  },
};

/**
 * The synchronous standby is cut off, so no COMMIT is acknowledged. Then the primary dies, and that standby is
 * promoted.
 */
export const cutOffStandbyPromoted = {
  name: 'cut-off standby promoted',
  async prepare(context) {
    context.server.cutOffReplica();
    Object.assign(context, hold(context));
    await sleep(UNACKNOWLEDGED);
  },
  async begin(context) {
    const { server } = context;
    await server.killWriter();
    await server.promote();
    await compete(context);
    await server.replaceOld();
  },
};
