import { setTimeout as sleep } from 'node:timers/promises';

// Faults inside one worker process.

export const workerKilled = {
  name: 'worker killed',
  begin: ({ fleet, worker }) => fleet.replace(worker),
};

const WAITERS = 2;
/** Longer than the fault, which ends the hold. */
const HOLD = 60_000;
/** Time for the waiters to be queued at the server, in ms. */
const QUEUED = 700;
/** How long after the kill the history may record it, in ms. */
const RECORDED = 500;
/**
 * Processes that only wait are killed while a lock is held for a long time: a crash loop behind a long task. The server
 * must end their sessions while the lock is still held. Then a live worker must get the lock, although dead waiters
 * were queued ahead of it.
 */
export const waitersKilled = {
  name: 'waiters killed',
  async begin({ subject: { sessionsEndWithin, recovery }, fleet, worker, server, resource, random }) {
    const holder = random.pick(fleet.members.filter((member) => member !== worker));
    const about = { key: `held:${worker.name}`, mode: 'exclusive', isExtra: true };
    fleet.send(holder, 'hold', { section: { ...about, wait: recovery, length: HOLD } });
    const waiters = await fleet.startBeside(worker, WAITERS);
    const sections = [{ ...about, wait: HOLD, length: 0 }];
    for (const waiter of waiters) fleet.send(waiter, 'add', { sections });
    await sleep(QUEUED);
    fleet.send(worker, 'add', { sections });
    const dead = waiters.map(({ name, life, proxies }) => ({
      name: `${name}/${life}`,
      ports: proxies.flatMap(({ clientPorts }) => clientPorts),
    }));
    await Promise.all(waiters.map((waiter) => fleet.kill(waiter)));
    // Only SQL backends have sessions that the server doesn't monitor.
    if (sessionsEndWithin) await recordSessions(dead, server, resource, sessionsEndWithin + RECORDED);
    fleet.send(holder, 'letGo', about);
    await fleet.remove(waiters);
  },
};

/**
 * Records how many sessions of each dead process remain on the server, once there are none or `within` ms have passed.
 */
async function recordSessions(dead, server, resource, within) {
  const until = performance.now() + within;
  const count = () => Promise.all(dead.map(({ ports }) => server.sessionsOf(ports)));
  let sessions = await count();
  while (sessions.some((left) => left > 0) && performance.now() < until) {
    await sleep(100);
    sessions = await count();
  }
  for (const [index, { name }] of dead.entries()) {
    await resource.record({ event: 'sessions', of: name, sessions: sessions[index] });
  }
}

export const workerPaused = {
  name: 'worker paused',
  begin: ({ worker }) => void worker.process.kill('SIGSTOP'),
  end: ({ worker }) => void worker.process.kill('SIGCONT'),
};

export const eventLoopBlocked = {
  name: 'event loop blocked',
  begin: ({ fleet, worker, duration }) => fleet.send(worker, 'block', { milliseconds: duration }),
  // The block ends without further action. `end` makes the history record how long it lasted.
  end: () => undefined,
};

export const clientClockStepped = {
  name: 'client clock stepped',
  begin: ({ fleet, worker, random }) => fleet.send(worker, 'clock', { step: random.pick([-60_000, 60_000]) }),
  end: ({ fleet, worker }) => fleet.send(worker, 'clock', { step: 0 }),
};
