import type { Clock, Timer } from '../../api/clock.js';
import type { HolderLabel } from '../../api/lock-traces.js';
import type { LockBackend } from '../../api/lock-provider.js';
import { detached } from '../toolkit/detached.js';
import { promised } from '../toolkit/promised.js';
import { labelText, readLabel } from './label-text.js';
import type { Waiter } from '../acquire/waiter.js';
import type { Holder } from '../hold/holder.js';

// A hold that lasts so long, in ms, is labelled, and a caller that waits so long looks at the label of the holder.
const LONG = 250;

/** A caller whose hold or wait is not long yet. */
interface Pending {
  /** When it is, on the monotonic clock. */
  readonly at: number;
  readonly onLong: (now: number) => void;
}

/**
 * The labels of long holds, by which the trace of a caller that waits finds the span of the holder, which may be in another process.
 *
 * Only traced holds are labelled, because only traced waits look. One timer serves all of them, and a caller that is not traced costs nothing. A label
 * is an extra: nothing waits for it, and where it cannot be written or read there is none.
 */
export class Labels {
  /** In the order of their times. */
  readonly #pending = new Map<Waiter | Holder, Pending>();
  /** The labels of those that hold long. */
  readonly #texts = new WeakMap<Holder, string>();
  #timer: Timer | undefined;

  constructor(
    private readonly backend: Pick<LockBackend, 'label' | 'labelOf'>,
    private readonly clock: Clock,
  ) {}

  /** The span of this hold has this `traceparent`; `null` if it is not sampled. */
  held(holder: Holder, traceparent: string | null): void {
    // Of several holders, none alone keeps others out.
    if (holder.terms.mode !== 'exclusive' || this.backend.label === undefined) return;
    const text = labelText({ method: holder.subject.method, traceparent });
    if (text === undefined) return;
    this.#add(holder, (now) => {
      this.#texts.set(holder, text);
      this.#write(holder, now);
    });
  }

  /** It waits until {@link forget}, and `onHolder` wants to know the holder. */
  awaited(waiter: Waiter, onHolder: (label: HolderLabel) => void): void {
    if (this.backend.labelOf === undefined) return;
    const lookLater = (looks: number): void => {
      this.#add(waiter, () => {
        void this.#look(waiter, onHolder).then((isOver) => {
          // A second look, because a holder that came in the same moment labels its lock in this one.
          if (!isOver && looks === 1 && waiter.isQueued) lookLater(2);
        });
      });
    };
    lookLater(1);
  }

  /** Its grant was renewed: the label lasts as long. */
  renewed(holder: Holder): void {
    if (this.#texts.has(holder)) this.#write(holder, this.clock.now());
  }

  /** The wait or the hold is over. */
  forget(caller: Waiter | Holder): void {
    this.#pending.delete(caller);
  }

  /** Nothing is written or read any more. */
  stop(): void {
    this.#pending.clear();
    if (this.#timer !== undefined) this.clock.clearTimer(this.#timer);
    this.#timer = undefined;
  }

  #write(holder: Holder, now: number): void {
    const text = this.#texts.get(holder);
    const remaining = holder.remaining(now);
    // After a suspension of the machine, the next renewal shows whether the lock is still held.
    if (text === undefined || remaining <= 0 || !holder.grant.isVerified()) return;
    try {
      this.backend.label?.(holder.grant.request, text, remaining);
    } catch {
      // The lock does not depend on it.
    }
  }

  /** Resolves to whether there is nothing to look for any more: there was a label, or no answer. */
  async #look(waiter: Waiter, onHolder: (label: HolderLabel) => void): Promise<boolean> {
    try {
      const text = await promised(() => this.backend.labelOf?.(waiter.key) ?? Promise.resolve(null));
      const label = text === null ? undefined : readLabel(text);
      if (label === undefined) return false;
      // The caller may hold by now, or have got its error.
      if (waiter.isQueued) onHolder(label);
    } catch {
      // The wait does not depend on it.
    }
    return true;
  }

  #add(caller: Waiter | Holder, onLong: Pending['onLong']): void {
    this.#pending.set(caller, { at: this.clock.now() + LONG, onLong });
    // In no caller's context, which a timer would keep alive.
    if (this.#timer === undefined) detached(this.#wake, LONG);
  }

  readonly #wake = (delay: number): void => {
    // Rounded up: a timer that fires a fraction early would find nothing due and spin.
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
