// Faults of one worker process.

export const workerKilled = {
  name: 'worker killed',
  begin: ({ fleet, worker }) => fleet.replace(worker),
};

export const workerPaused = {
  name: 'worker paused',
  begin: ({ worker }) => void worker.process.kill('SIGSTOP'),
  end: ({ worker }) => void worker.process.kill('SIGCONT'),
};

export const eventLoopBlocked = {
  name: 'event loop blocked',
  begin: ({ fleet, worker, duration }) => fleet.send(worker, 'block', { milliseconds: duration }),
  // The block ends by itself. `end` makes the history record how long it lasted.
  end: () => undefined,
};

export const clientClockStepped = {
  name: 'client clock stepped',
  begin: ({ fleet, worker, random }) => fleet.send(worker, 'clock', { step: random.pick([-60_000, 60_000]) }),
  end: ({ fleet, worker }) => fleet.send(worker, 'clock', { step: 0 }),
};
