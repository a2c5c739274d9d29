import type { BackendContext } from '../../api/lock-provider.js';
import { backOff, pause } from '../../core/toolkit/timing.js';

const PAUSE = { first: 60, most: 60 };

/** Waits until a busy lock is asked for again by a waiter that has no connection to wait on, or until the signal aborts. */
export function pauseBeforeRetry({ clock, random }: BackendContext, signal: AbortSignal): Promise<void> {
  return pause(clock, backOff(random, 0, PAUSE), signal);
}
