import type { Clock, Timer } from '../../api/clock.js';
import type { HolderLabel } from '../../api/lock-traces.js';
import type { LockBackend } from '../../api/lock-provider.js';
import { detached } from '../toolkit/detached.js';
import { promised } from '../toolkit/promised.js';
import { labelText, readTraceLabel } from './trace-label-text.js';
import type { Waiter } from '../acquire/waiter.js';
import type { Holder } from '../hold/holder.js';

// After this long, a hold gets a label, and a waiter reads the holder's label.
const LONG_MS = 250;

/** What to do when a hold or wait becomes long. */
interface Pending {
  readonly at: number;
  readonly onLong: (now: number) => void;
}

/**
 * The trace labels of long holds. They link a waiting caller's trace to the holder's span, which may be in another
 * process.
 *
 * Only traced holds get labels, because only traced waits read them. One timer serves them all, and untraced callers
 * cost nothing. Labels are optional: nothing waits for them, and failures to write or read them are ignored.
 */
export class TraceLabels {
  /** Ordered by `at`, because all entries have the same delay. */
  readonly #pending = new Map<Waiter | Holder, Pending>();
  /** The labels of long holds. */
  readonly #texts = new WeakMap<Holder, string>();
  #timer: Timer | undefined;

  constructor(
    private readonly backend: Pick<LockBackend, 'label' | 'labelOf'>,
    private readonly clock: Clock,
  ) {}

  /**
   * Labels a hold once it becomes long. `traceparent`: taken from the hold's span, or `null` if the span isn't sampled.
   */
  held(holder: Holder, traceparent: string | null): void {
    // A shared or limited lock may have several holders, and no single holder blocks others.
    if (holder.terms.mode !== 'exclusive' || this.backend.label === undefined) return;
    const text = labelText({ method: holder.subject.method, traceparent });
    if (text === undefined) return;
    this.#add(holder, (now) => {
      this.#texts.set(holder, text);
      this.#write(holder, now);
    });
  }

  /** Passes the holder's label to `onHolder` once the wait is long, unless {@link forget} comes first. */
  awaited(waiter: Waiter, onHolder: (label: HolderLabel) => void): void {
    if (this.backend.labelOf === undefined) return;
    const readLater = (attempt: number): void => {
      this.#add(waiter, () => {
        void this.#read(waiter, onHolder).then((isDone) => {
          // Reads the label again, because a holder that arrived with the waiter is only now writing it.
          if (!isDone && attempt === 1 && waiter.isQueued) readLater(2);
        });
      });
    };
    readLater(1);
  }

  /** Extends the label of a renewed grant. */
  renewed(holder: Holder): void {
    if (this.#texts.has(holder)) this.#write(holder, this.clock.now());
  }

  forget(caller: Waiter | Holder): void {
    this.#pending.delete(caller);
  }

  stop(): void {
    this.#pending.clear();
    if (this.#timer !== undefined) this.clock.clearTimer(this.#timer);
    this.#timer = undefined;
  }

  #write(holder: Holder, now: number): void {
    const text = this.#texts.get(holder);
    const remaining = holder.remaining(now);
    // If the machine was suspended, wait for a renewal to show that the lock is still held.
    if (text === undefined || remaining <= 0 || !holder.grant.isVerified()) return;
    try {
      this.backend.label?.(holder.grant.request, text, remaining);
    } catch {
      // Labels are optional.
    }
  }

  /** Resolves to false if the holder has no label yet. */
  async #read(waiter: Waiter, onHolder: (label: HolderLabel) => void): Promise<boolean> {
    try {
      const text = await promised(() => this.backend.labelOf?.(waiter.key) ?? Promise.resolve(null));
      const label = text === null ? undefined : readTraceLabel(text);
      if (label === undefined) return false;
      // The wait may have ended in the meantime.
      if (waiter.isQueued) onHolder(label);
    } catch {
      // Labels are optional.
    }
    return true;
  }

  #add(caller: Waiter | Holder, onLong: Pending['onLong']): void {
    this.#pending.set(caller, { at: this.clock.now() + LONG_MS, onLong });
    // Runs detached; otherwise, the timer would retain the caller's async context.
    if (this.#timer === undefined) detached(this.#wake, LONG_MS);
  }

  readonly #wake = (delay: number): void => {
    // Round up: a timer that fires a fraction of a millisecond early would find nothing due and spin.
    this.#timer = this.clock.setTimer(this.#onTime, Math.ceil(delay), false);
  };

  readonly #onTime = (): void => {
    this.#timer = undefined;
    const now = this.clock.now();
    for (const [caller, { at, onLong }] of this.#pending) {
      if (at > now) {
        this.#wake(at - now);
        return;
      }
      this.#pending.delete(caller);
      onLong(now);
    }
  };
}
