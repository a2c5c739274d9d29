import type {
  AcquireRequest,
  Grant,
  Holder,
  ProviderContext,
  ReleaseManner,
  ReleaseOutcome,
} from '../../../lib/api/lock-provider.js';
import type { LockTable } from '../../../lib/providers/memory/lock-table.js';
import { copyOf, DistantMemoryProvider } from '../memory-backend.js';
import type { Acquired } from './changed.js';

// Faults in who waits. See ../kit-catches.spec.ts.

export class StaysInTheQueue extends DistantMemoryProvider {
  override acquire(request: AcquireRequest): Acquired {
    if (request.wait <= 0) return super.acquire(request);
    const { signal } = request;
    const answer = super.acquire({ ...copyOf(request), signal: new AbortController().signal });
    return new Promise((resolve, reject) => {
      signal.addEventListener('abort', () => resolve('busy'), { once: true });
      Promise.resolve(answer).then(resolve, reject);
    });
  }
}

export class AnswersAnAbortLate extends DistantMemoryProvider {
  override acquire(request: AcquireRequest): Acquired {
    const answer = super.acquire(request);
    if (!(answer instanceof Promise)) return answer;
    return answer.then((outcome: Grant | 'busy') =>
      outcome === 'busy' ? new Promise((resolve) => this.context?.clock.setTimer(() => resolve('busy'), 700)) : outcome,
    );
  }
}

export class LeaksWhatIsGrantedAtTheAbort extends DistantMemoryProvider {
  override acquire(request: AcquireRequest): Acquired {
    const answer = super.acquire(request);
    if (!(answer instanceof Promise)) return answer;
    // It looks once more, a moment later, whether somebody still wants what was granted; if not, it drops it.
    return answer.then(async (outcome: Grant | 'busy') => {
      await new Promise((resolve) => setImmediate(resolve));
      return request.signal.aborted ? 'busy' : outcome;
    });
  }
}

export class QueuesWithoutSayingSo extends DistantMemoryProvider {
  override start(context: ProviderContext): Promise<void> {
    return super.start({
      ...context,
      emit: (event) => {
        if (event.type !== 'waiting') context.emit(event);
      },
    });
  }
}

export class LastComeFirstServed extends DistantMemoryProvider {
  static readonly #stacks = new WeakMap<LockTable, (() => void)[]>();

  override acquire(request: AcquireRequest): Acquired {
    const stack = LastComeFirstServed.#stacks.get(this.table) ?? [];
    LastComeFirstServed.#stacks.set(this.table, stack);
    const { signal, holder } = request;
    const attempt = () => super.acquire({ ...copyOf(request), wait: 0, signal });
    const first = attempt();
    if (first !== 'busy' || request.wait <= 0) return first;
    this.context?.emit({ type: 'waiting', holder });
    return new Promise((resolve) => {
      const look = () => {
        const outcome = signal.aborted ? 'busy' : attempt();
        if (outcome === 'busy' && !signal.aborted) return;
        stack.splice(stack.indexOf(look), 1);
        resolve(outcome);
      };
      stack.push(look);
      signal.addEventListener('abort', look, { once: true });
    });
  }

  override release(holder: Holder, manner: ReleaseManner): ReleaseOutcome {
    const outcome = super.release(holder, manner);
    LastComeFirstServed.#stacks.get(this.table)?.at(-1)?.();
    return outcome;
  }
}
