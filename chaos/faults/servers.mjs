import { setTimeout as sleep } from 'node:timers/promises';

// Faults of a server of any kind.

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
export const allServersPaused = {
  name: 'all servers paused',
  begin: ({ backend }) => backend.servers.forEach((server) => server.signal('SIGSTOP')),
  end: ({ backend }) => backend.servers.forEach((server) => server.signal('SIGCONT')),
};

const STEP = 2_000;
export const serverClockStepped = {
  name: 'server clock stepped',
  // The clock that replaces the server's own needs a C compiler.
  possible: ({ server }) => server.clock !== undefined,
  begin: ({ server, random }) => server.clock.step(random.pick([-STEP, STEP])),
  end: ({ server }) => server.clock.step(0),
  // Until the clock has passed every token that was taken from it. A loss of data before that would be a second fault, which is
  // documented.
  settle: STEP,
};
