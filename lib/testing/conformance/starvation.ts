import os from 'node:os';

/** Watches, until it is told to end, for how long this process was kept from running. */
export interface StarvationWatch {
  /** The longest time so far, in ms. */
  longest(): number;
  end(): void;
}

const LOOK_EVERY = 10;
// The kernel counts idle time in steps of 10 ms for each processor.
const WEIGH_EVERY = 100;
/** With less of its time to spare, a machine lets backends and whatever lies before them wait as well. */
const IDLE_AT_LEAST = 0.05;

/**
 * Counts how long this process stood still, as a virtual machine does whose host is busy, and how long the machine had
 * nothing to spare: then the servers may have stood still that a process talks with.
 */
export function watchStarvation(): StarvationWatch {
  let lookedAt = performance.now();
  let weighedAt = lookedAt;
  let before = processorTimes();
  let busyFor = 0;
  let longest = 0;
  const look = () => {
    const now = performance.now();
    longest = Math.max(longest, now - lookedAt);
    lookedAt = now;
    const elapsed = now - weighedAt;
    if (elapsed < WEIGH_EVERY) return;
    const times = processorTimes();
    // What was stolen from a virtual machine is counted nowhere, so idle time is compared with a clock.
    const idle = (times.idle - before.idle) / (elapsed * times.processors);
    // Where nothing is counted at all nothing is known.
    const isBusy = times.all > before.all && idle < IDLE_AT_LEAST;
    busyFor = isBusy ? busyFor + elapsed : 0;
    longest = Math.max(longest, busyFor);
    weighedAt = now;
    before = times;
  };
  const timer = setInterval(look, LOOK_EVERY).unref();
  return {
    longest: () => {
      look();
      return longest;
    },
    end: () => {
      clearInterval(timer);
    },
  };
}

function processorTimes(): { readonly processors: number; readonly idle: number; readonly all: number } {
  const each = os.cpus().map(({ times }) => times);
  const sum = (count: (times: (typeof each)[number]) => number) =>
    each.reduce((total, times) => total + count(times), 0);
  return {
    processors: each.length,
    idle: sum(({ idle }) => idle),
    all: sum(({ user, nice, sys, irq, idle }) => user + nice + sys + irq + idle),
  };
}
