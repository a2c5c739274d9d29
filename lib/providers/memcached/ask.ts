import type { Clock } from '../../api/clock.js';
import type { Random } from '../../api/random.js';

// A release says nothing to who waits, so who waits looks again. Jittered, so that processes do not look in step.
const PAUSE_FIRST = 10;
const PAUSE_AT_MOST = 200;

/** One ask for a lock that is under way, from its first look to its last. */
export class Ask {
  /** A release of its holder was sent, or the provider stops: it looks no more. */
  isReleased = false;
  /** What comes of it. */
  answer: Promise<unknown> | undefined;
  #rounds = 0;
  #wake: (() => void) | undefined;

  constructor(
    private readonly clock: Clock,
    private readonly random: Random,
  ) {}

  /** Ends it. What an addition that is under way may still bring finds the release that is sent behind it. */
  release(): void {
    this.isReleased = true;
    this.#wake?.();
  }

  /** Waits until it is time to look again, the caller leaves, or its holder is released. */
  async pause(signal: AbortSignal): Promise<void> {
    if (signal.aborted || this.isReleased) return;
    const delay = Math.min(PAUSE_FIRST * 2 ** this.#rounds, PAUSE_AT_MOST) * (0.5 + this.random.fraction() / 2);
    this.#rounds += 1;
    await new Promise<void>((resolve) => {
      const wake = () => {
        signal.removeEventListener('abort', wake);
        this.clock.clearTimer(timer);
        resolve();
      };
      const timer = this.clock.setTimer(wake, delay);
      signal.addEventListener('abort', wake);
      this.#wake = wake;
    });
  }
}
