// Faults of one worker process.

export const workerKilled = {
  name: 'worker killed',
  begin: ({ fleet, victim }) => fleet.replace(victim),
};

export const workerPaused = {
  name: 'worker paused',
  begin: ({ victim }) => void victim.process.kill('SIGSTOP'),
  end: ({ victim }) => void victim.process.kill('SIGCONT'),
};

export const eventLoopBlocked = {
  name: 'event loop blocked',
  begin: ({ fleet, victim, duration }) => fleet.order(victim, 'block', { milliseconds: duration }),
  // By itself; the log has to say for how long it lasts.
  end: () => undefined,
};

export const clientClockStepped = {
  name: 'client clock stepped',
  begin: ({ fleet, victim, random }) => fleet.order(victim, 'clock', { step: random.pick([-60_000, 60_000]) }),
  end: ({ fleet, victim }) => fleet.order(victim, 'clock', { step: 0 }),
};
