import type { Clock, Timer } from '../../api/clock.js';
import type { HolderLabel } from '../../api/lock-traces.js';
import type { LockBackend } from '../../api/lock-provider.js';
import { detached } from '../toolkit/detached.js';
import { promised } from '../toolkit/promised.js';
import { labelText, readLabel } from './label-text.js';
import type { KeyRequest, RequestCaller } from './key-request.js';

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
  readonly #pending = new Map<RequestCaller, Pending>();
  /** The labels of those that hold long. */
  readonly #texts = new WeakMap<RequestCaller, string>();
  #timer: Timer | undefined;

  constructor(
    private readonly backend: Pick<LockBackend, 'label' | 'labelOf'>,
    private readonly clock: Clock,
  ) {}

  /** The caller holds by this request, and its hold has this `traceparent`; `null` if its span is not sampled. */
  held(caller: RequestCaller, request: KeyRequest, traceparent: string | null): void {
    // Of several holders, none alone keeps others out.
    if (request.mode !== 'exclusive' || this.backend.label === undefined) return;
    const text = labelText({ method: caller.subject.method, traceparent });
    if (text === undefined) return;
    this.#add(caller, (now) => {
      this.#texts.set(caller, text);
      this.#write(caller, request, now);
    });
  }

  /** The caller waits for this key until `outcome` settles, and `onHolder` wants to know the holder. */
  awaited(caller: RequestCaller, key: string, outcome: Promise<unknown>, onHolder: (label: HolderLabel) => void): void {
    if (this.backend.labelOf === undefined) return;
    const forget = (): void => {
      this.forget(caller);
    };
    outcome.then(forget, forget);
    const lookLater = (looks: number): void => {
      this.#add(caller, () => {
        void this.#look(caller, key, onHolder).then((isOver) => {
          // A second look, because a holder that came in the same moment labels its lock in this one.
          if (!isOver && looks === 1 && caller.isQueued) lookLater(2);
        });
      });
    };
    lookLater(1);
  }

  /** The request was renewed, by which the caller holds: its label lasts as long. */
  renewed(caller: RequestCaller, request: KeyRequest): void {
    if (this.#texts.has(caller)) this.#write(caller, request, this.clock.now());
  }

  /** The wait of the caller is over, or its hold. */
  forget(caller: RequestCaller): void {
    this.#pending.delete(caller);
  }

  /** Nothing is written or read any more. */
  stop(): void {
    this.#pending.clear();
    if (this.#timer !== undefined) this.clock.clearTimer(this.#timer);
    this.#timer = undefined;
  }

  #write(caller: RequestCaller, request: KeyRequest, now: number): void {
    const text = this.#texts.get(caller);
    const remaining = caller.remaining(now);
    // After a suspension of the machine, the next renewal shows whether the lock is still held.
    if (text === undefined || remaining <= 0 || !request.isVerified()) return;
    try {
      this.backend.label?.(request, text, remaining);
    } catch {
      // The lock does not depend on it.
    }
  }

  /** Resolves to whether there is nothing to look for any more: there was a label, or no answer. */
  async #look(caller: RequestCaller, key: string, onHolder: (label: HolderLabel) => void): Promise<boolean> {
    try {
      const text = await promised(() => this.backend.labelOf?.(key) ?? Promise.resolve(null));
      const label = text === null ? undefined : readLabel(text);
      if (label === undefined) return false;
      // The caller may hold by now, or have got its error.
      if (caller.isQueued) onHolder(label);
    } catch {
      // The wait does not depend on it.
    }
    return true;
  }

  #add(caller: RequestCaller, onLong: Pending['onLong']): void {
    // Behind the others also if it is there: they are in the order of their times.
    this.#pending.delete(caller);
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
