import { setTimeout as sleep } from 'node:timers/promises';

// Actions of a Redis operator or of another account.

export const clientKill = {
  name: 'CLIENT KILL',
  async begin({ server: { admin } }) {
    await admin.client('KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
    await admin.client('KILL', 'TYPE', 'pubsub');
  },
};
export const clientPause = {
  name: 'CLIENT PAUSE',
  begin: ({ server, duration }) => server.admin.client('PAUSE', duration, 'ALL'),
  // Redis replies when the pause is over.
  end: ({ server }) => server.admin.ping(),
};
export const scriptFlush = { name: 'SCRIPT FLUSH', begin: ({ server }) => server.admin.script('FLUSH') };
export const flushAll = { name: 'FLUSHALL', begin: ({ server }) => server.admin.flushall() };

/** Keys of applications that share the server, one of them with its own namespace. */
const OTHERS = {
  'session:42': 'a session',
  'list:7': 'l0000000000000042',
  config: '{"a":1}',
  'other:{0}:order': `p${'9'.repeat(16)}${'ab'.repeat(22)}`,
  'other:{0}:readers': `s${'9'.repeat(16)}`,
};
/**
 * An account that may only publish sends forged notices to the processes: about other applications' keys, and with
 * unknown ids.
 */
export const noticesForged = {
  name: 'notices forged',
  async begin({ server: { admin }, random, duration }) {
    await admin.mset(OTHERS);
    const names = [...Object.keys(OTHERS), 'lock:{0}:a', 'lock:{1}:b', 'lock', ''];
    const holder = () => Array.from({ length: 44 }, () => random.between(0, 15).toString(16)).join('');
    for (const until = performance.now() + duration; performance.now() < until; await sleep(5)) {
      const notices = [
        `${'1'.repeat(16)}${'2'.repeat(16)}013000:${holder()} ${random.pick(names)}`,
        `k${random.between(0, 2_000)}:${holder()}`,
        random.pick(names),
      ];
      for (const channel of await admin.pubsub('CHANNELS', 'lock:*'))
        await admin.publish(channel, random.pick(notices));
    }
    const values = await admin.mget(Object.keys(OTHERS));
    const changed = Object.keys(OTHERS).filter((name, index) => values[index] !== OTHERS[name]);
    await admin.del(Object.keys(OTHERS));
    if (changed.length > 0) throw new Error(`A forged notice has changed keys of others: ${changed.join(', ')}`);
  },
};

/** A Cluster moves the locks of one bucket to another master. */
export const slotMoved = { name: 'slot moved', begin: ({ backend, random }) => backend.moveSlot(random) };

/** A reader holds and renews a lock while the keys in its slot move one by one. */
export const slotMigrating = {
  name: 'slot migrating',
  async begin({ subject: { lifetime }, fleet, backend, worker, random, duration }) {
    const key = random.pick(['a', 'b']);
    fleet.send(worker, 'add', { sections: [{ key, mode: 'shared', length: lifetime + 2 * duration }] });
    await backend.moveSlot(random, { key, duration });
  },
};
