import type {
  AcquireRequest,
  BackendContext,
  Grant,
  Holding,
  ReleaseOptions,
  ReleaseOutcome,
  SeenGrant,
  WaitBoard,
} from '../../../lib/api/lock-provider.js';
import type { MemoryStore } from '../../../lib/providers/memory/memory-store.js';
import { MemoryWaits } from '../../../lib/providers/memory/memory-waits.js';
import { copyOf, DistantBackend } from '../memory-server.js';
import type { Acquired } from './changed.js';

// Faults in who waits. See ../kit-catches.spec.ts.

export class StaysInTheQueue extends DistantBackend {
  override acquire(request: AcquireRequest): Acquired {
    if (request.wait <= 0) return super.acquire(request);
    const { signal } = request;
    const answer = super.acquire({ ...copyOf(request), signal: new AbortController().signal });
    return new Promise((resolve, reject) => {
      signal.addEventListener('abort', () => resolve('busy'), { once: true });
      answer.then(resolve, reject);
    });
  }
}

export class AnswersAnAbortLate extends DistantBackend {
  override acquire(request: AcquireRequest): Acquired {
    const answer = super.acquire(request);
    if (request.wait <= 0) return answer;
    return answer.then<Grant | 'busy'>((outcome) =>
      outcome === 'busy'
        ? new Promise<'busy'>((resolve) => this.surrounding.clock.setTimer(() => resolve('busy'), 700))
        : outcome,
    );
  }
}

export class LeaksWhatIsGrantedAtTheAbort extends DistantBackend {
  override acquire(request: AcquireRequest): Acquired {
    const answer = super.acquire(request);
    if (request.wait <= 0) return answer;
    // It looks once more, a moment later, whether somebody still wants what was granted; if not, it drops it.
    return answer.then(async (outcome) => {
      await new Promise((resolve) => setImmediate(resolve));
      return request.signal.aborted ? 'busy' : outcome;
    });
  }
}

export class QueuesWithoutSayingSo extends DistantBackend {
  override acquire(request: AcquireRequest): Acquired {
    return super.acquire({ ...copyOf(request), signal: request.signal, waits: () => undefined });
  }
}

export class LastComeFirstServed extends DistantBackend {
  static readonly #stacks = new WeakMap<MemoryStore, (() => Promise<void>)[]>();

  override async acquire(request: AcquireRequest): Acquired {
    const stack = LastComeFirstServed.#stacks.get(this.memory) ?? [];
    LastComeFirstServed.#stacks.set(this.memory, stack);
    const { signal } = request;
    const attempt = () => super.acquire({ ...copyOf(request), wait: 0, signal });
    const first = await attempt();
    if (first !== 'busy' || request.wait <= 0) return first;
    request.waits();
    return new Promise((resolve) => {
      const look = async () => {
        const outcome = signal.aborted ? 'busy' : await attempt();
        if (outcome === 'busy' && !signal.aborted) return;
        stack.splice(stack.indexOf(look), 1);
        resolve(outcome);
      };
      stack.push(look);
      signal.addEventListener('abort', () => void look(), { once: true });
    });
  }

  override async release(request: AcquireRequest, options: ReleaseOptions): Promise<ReleaseOutcome> {
    const outcome = await super.release(request, options);
    void LastComeFirstServed.#stacks.get(this.memory)?.at(-1)?.();
    return outcome;
  }
}

export class AsksForAllOfAChain extends DistantBackend {
  chains(): boolean {
    return true;
  }
}

/** Names its own instance as the holder that keeps a request out. */
export class NamesTheWrongHolder extends DistantBackend {
  override heldBy(): Holding {
    const { clock, instance } = this.surrounding;
    return { holders: 1, instance: instance.name, since: null, seenAt: clock.now() };
  }
}

/** Keeps labels by their keys alone. */
export class ShowsStaleLabels extends DistantBackend {
  static readonly #labels = new WeakMap<MemoryStore, Map<string, string>>();

  get #all(): Map<string, string> {
    const all = ShowsStaleLabels.#labels.get(this.memory) ?? new Map<string, string>();
    ShowsStaleLabels.#labels.set(this.memory, all);
    return all;
  }

  override label({ key }: AcquireRequest, text: string): void {
    this.#all.set(key, text);
  }

  override labelOf(key: string): Promise<string | null> {
    return Promise.resolve(this.#all.get(key) ?? null);
  }
}

function boardOf(store: MemoryStore, { namespace, name, instance }: BackendContext): MemoryWaits {
  return new MemoryWaits(store, `${namespace}:`, name, instance.id);
}

export class KeepsTexts extends DistantBackend {
  override readonly waits: WaitBoard;

  constructor(...terms: ConstructorParameters<typeof DistantBackend>) {
    super(...terms);
    const board = boardOf(this.memory, this.surrounding);
    this.waits = {
      serverTime: () => board.serverTime(),
      read: (instance) => board.read(instance),
      holders: (key, most) => board.holders(key, most),
      publish: (text) => board.publish(text, 3_600_000),
    };
  }
}

export class SeesThoseThatHaveLeft extends DistantBackend {
  override readonly waits: WaitBoard;
  readonly #seen = new Map<string, readonly SeenGrant[]>();

  constructor(...terms: ConstructorParameters<typeof DistantBackend>) {
    super(...terms);
    const board = boardOf(this.memory, this.surrounding);
    this.waits = {
      serverTime: () => board.serverTime(),
      read: (instance) => board.read(instance),
      publish: (text, keepFor) => board.publish(text, keepFor),
      // As it was when the key was held.
      holders: async (key, most) => {
        const seen = await board.holders(key, most);
        if (seen.length > 0) this.#seen.set(key, seen);
        return this.#seen.get(key) ?? [];
      },
    };
  }
}
