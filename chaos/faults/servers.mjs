import { setTimeout as sleep } from 'node:timers/promises';

// Faults of any kind of server.

export const serverPaused = {
  name: 'server paused',
  begin: ({ server }) => server.signal('SIGSTOP'),
  end: ({ server }) => server.signal('SIGCONT'),
};

export const serverRestarted = { name: 'server restarted', begin: ({ server }) => server.crash() };
export const serverDown = { name: 'server down', begin: ({ server, duration }) => server.crash({ downFor: duration }) };
export const serverRestartedEmpty = {
  name: 'server restarted empty',
  possible: ({ server }) => server.loseData !== undefined,
  begin: ({ server }) => server.loseData(),
};

const FLAPS = 5;
export const serverFlapping = {
  name: 'server flapping',
  async begin({ server, duration }) {
    for (let flap = 0; flap < FLAPS; flap += 1) {
      server.signal('SIGSTOP');
      await sleep(duration / FLAPS);
      server.signal('SIGCONT');
      await sleep(duration / FLAPS);
    }
  },
};

const LONGEST_STEP = 3;
/**
 * Pauses the server 0 to 3 ms after a holder has called `release()`: before the handoff, during it, or before its
 * confirmation.
 */
export const serverPausedInHandoff = {
  name: 'server paused in a handoff',
  async begin({ fleet, backend, worker, server, random, duration }) {
    const paused = (await backend.master?.()) ?? server;
    // Either a single pause that may outlast the lease, or several that don't.
    const pauses = random.pick([1, FLAPS]);
    for (let pause = 0; pause < pauses; pause += 1) {
      await fleet.nextRelease(worker, 'a');
      await sleep(random.between(0, LONGEST_STEP));
      paused.signal('SIGSTOP');
      await sleep(duration / pauses);
      paused.signal('SIGCONT');
    }
  },
};

const WAIT = 2_500;
/** Longer than the second between two status checks of a waiter plus the second for which one may stay unanswered. */
const FROZEN_BEFORE_DEADLINE = 2_300;
const FROZEN_AFTER_DEADLINE = 1_500;
/**
 * All servers freeze while one worker waits for another worker's lock, until the wait is over. Reporting the key as
 * busy would be a guess.
 */
export const serversFrozenAtDeadline = {
  name: 'servers frozen at a deadline',
  async begin({ fleet, worker, backend, random }) {
    const holder = random.pick(fleet.members.filter((member) => member !== worker));
    const about = { key: `frozen:${worker.name}`, mode: 'exclusive', isExtra: true };
    fleet.send(holder, 'add', { sections: [{ ...about, wait: 0, length: WAIT + FROZEN_AFTER_DEADLINE }] });
    await sleep((WAIT - FROZEN_BEFORE_DEADLINE) / 2);
    fleet.send(worker, 'add', { sections: [{ ...about, wait: WAIT, length: 0, never: 'LOCK_BUSY' }] });
    await sleep((WAIT - FROZEN_BEFORE_DEADLINE) / 2);
    for (const server of backend.servers) server.signal('SIGSTOP');
    await sleep(FROZEN_BEFORE_DEADLINE + FROZEN_AFTER_DEADLINE);
    for (const server of backend.servers) server.signal('SIGCONT');
  },
};
export const allServersPaused = {
  name: 'all servers paused',
  begin: ({ backend }) => backend.servers.forEach((server) => server.signal('SIGSTOP')),
  end: ({ backend }) => backend.servers.forEach((server) => server.signal('SIGCONT')),
};

const STEP = 2_000;
export const serverClockStepped = {
  name: 'server clock stepped',
  // Replacing the server's clock requires a C compiler.
  possible: ({ server }) => server.clock !== undefined,
  begin: ({ server, random }) => server.clock.step(random.pick([-STEP, STEP])),
  end: ({ server }) => server.clock.step(0),
  // Until the clock has passed every token that was derived from it. Losing data before then would be a second,
  // documented fault.
  settle: STEP,
};
