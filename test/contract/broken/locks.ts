import type { LockInfo } from '../../../lib/api/lock-info.js';
import { type LockError, LockUnavailableError } from '../../../lib/api/errors.js';
import type {
  AcquireRequest,
  BackendContext,
  Grant,
  Holding,
  LockCapabilities,
  ReleaseOptions,
  ReleaseOutcome,
  RenewOutcome,
  SeenGrant,
  WaitBoard,
} from '../../../lib/api/lock-provider.js';
import { validUntil } from '../../../lib/core/toolkit/validity.js';
import type { MemoryStore } from '../../../lib/providers/memory/memory-store.js';
import { MemoryWaits } from '../../../lib/providers/memory/memory-waits.js';
import { copyOf, DistantBackend } from '../memory-server.js';

// Backends with one fault each. See ../kit-catches.spec.ts.

type Acquired = Promise<Grant | 'busy'>;

/** Changes the grant of an `acquire`. */
async function changed(answer: Acquired, change: (grant: Grant) => Grant): Acquired {
  const outcome = await answer;
  return outcome === 'busy' ? 'busy' : change(outcome);
}

// Faults in ownership and in what is reported about it.

export class FreesAnybody extends DistantBackend {
  override async release(request: AcquireRequest, options: ReleaseOptions): Promise<ReleaseOutcome> {
    const outcome = await super.release(request, options);
    if (outcome === 'lost') this.memory.free(`${this.surrounding.namespace}:${request.key}`);
    return outcome;
  }
}

export class AlwaysReleased extends DistantBackend {
  override async release(request: AcquireRequest, options: ReleaseOptions): Promise<ReleaseOutcome> {
    await super.release(request, options);
    return 'released';
  }
}

export class ForgetsToRelease extends DistantBackend {
  override release(): Promise<ReleaseOutcome> {
    return Promise.resolve('released');
  }
}

/** A later acquire overtakes the release. */
export class ReleasesLater extends DistantBackend {
  override async release(...args: Parameters<DistantBackend['release']>): Promise<ReleaseOutcome> {
    await Promise.resolve();
    return super.release(...args);
  }
}

export class AdmitsEverybody extends DistantBackend {
  override acquire(request: AcquireRequest): Acquired {
    const { signal } = request;
    return super.acquire({ ...copyOf(request), mode: 'shared', signal });
  }
}

export class ReadersExcludeEachOther extends DistantBackend {
  override acquire(request: AcquireRequest): Acquired {
    const { signal } = request;
    return super.acquire({ ...copyOf(request), mode: 'exclusive', signal });
  }
}

export class RestartsTokens extends DistantBackend {
  #token = 0n;
  override acquire(request: AcquireRequest): Acquired {
    return changed(super.acquire(request), (grant) => ({ ...grant, fencingToken: (this.#token += 1n) }));
  }
}

export class SameIdTwice extends DistantBackend {
  override acquire(request: AcquireRequest): Acquired {
    const name = `${this.surrounding.namespace}:${request.key}`;
    const isOwn = this.memory.report(name)?.holds.some(({ holder }) => holder === request.id);
    return isOwn ? Promise.resolve('busy') : super.acquire(request);
  }
}

export class FreesParkedKeys extends DistantBackend {
  override release(request: AcquireRequest): Promise<ReleaseOutcome> {
    return super.release(request, { keepFor: 0, failed: false });
  }
}

export class ForgetsMinHoldInACrash extends DistantBackend {
  override acquire(request: AcquireRequest): Acquired {
    return super.acquire({ ...copyOf(request), minHold: 0, signal: request.signal });
  }
}

export class ForceReleasesNothing extends DistantBackend {
  override forceRelease(): Promise<boolean> {
    return Promise.resolve(true);
  }
}

export class ShowsHolders extends DistantBackend {
  override async inspect(key: string): Promise<LockInfo | null> {
    const info = await super.inspect(key);
    const [hold] = this.memory.report(`${this.surrounding.namespace}:${key}`)?.holds ?? [];
    return info && hold ? { ...info, key: `${key} of ${hold.holder}` } : info;
  }
}

export class TellsHolders extends DistantBackend {
  override acquire(request: AcquireRequest): Acquired {
    this.surrounding.logger.debug(`SET ${request.key} ${request.id}`);
    return super.acquire(request);
  }
}

// Faults in the lifetime of a lock.

export class ReacquiresOnRenewal extends DistantBackend {
  override async renew(request: AcquireRequest, lease: number): Promise<RenewOutcome> {
    const { signal } = new AbortController();
    await super.acquire({ ...copyOf(request), lease, wait: 0, signal });
    return super.renew(request, lease);
  }
}

export class OneOutcomeForAllRenewals extends DistantBackend {
  #first: Promise<RenewOutcome> | undefined;

  override renew(request: AcquireRequest, lease: number): Promise<RenewOutcome> {
    const outcome = super.renew(request, lease);
    this.#first ??= outcome.finally(() => (this.#first = undefined));
    return this.#first;
  }
}

export class NeverRenews extends DistantBackend {
  override renew(_: AcquireRequest, lease: number): Promise<RenewOutcome> {
    return Promise.resolve({ validUntil: validUntil(this.surrounding.clock.now(), lease) });
  }
}

export class ProlongsWhenAskedAgain extends DistantBackend {
  override acquire(request: AcquireRequest): Acquired {
    this.memory.renew(`${this.surrounding.namespace}:${request.key}`, request.id, request.lease);
    return super.acquire(request);
  }
}

export class FailedAttemptsProlong extends DistantBackend {
  override acquire(request: AcquireRequest): Acquired {
    const name = `${this.surrounding.namespace}:${request.key}`;
    const [owner] = this.memory.report(name)?.holds ?? [];
    if (owner) this.memory.renew(name, owner.holder, request.lease);
    return super.acquire(request);
  }
}

export class BelievesTooLong extends DistantBackend {
  override acquire(request: AcquireRequest): Acquired {
    return changed(super.acquire(request), (grant) => ({ ...grant, validUntil: grant.validUntil + 500 }));
  }
}

export class GrantsWhatIsOver extends DistantBackend {
  override acquire(request: AcquireRequest): Acquired {
    return changed(super.acquire(request), (grant) => ({ ...grant, validUntil: grant.validUntil - grant.lease }));
  }
}

/** Stores the lease's end by its own wall clock and compares it with another machine's. */
export class ComparesWallClocks extends DistantBackend {
  static readonly #ends = new WeakMap<MemoryStore, Map<string, number>>();

  protected wallTime(): number {
    return this.surrounding.clock.wallTime();
  }

  override async acquire(request: AcquireRequest): Acquired {
    const name = `${this.surrounding.namespace}:${request.key}`;
    const ends = ComparesWallClocks.#ends.get(this.memory) ?? new Map<string, number>();
    ComparesWallClocks.#ends.set(this.memory, ends);
    if ((ends.get(name) ?? Infinity) < this.wallTime()) this.memory.free(name);
    return changed(super.acquire(request), (grant) => {
      ends.set(name, this.wallTime() + request.lease);
      return grant;
    });
  }
}

/** The same fault with `Date.now()` instead of the injected clock. */
export class ComparesDates extends ComparesWallClocks {
  protected override wallTime(): number {
    return Date.now();
  }
}

export class OneLeaseForAll extends DistantBackend {
  override acquire(request: AcquireRequest): Acquired {
    return super.acquire({ ...copyOf(request), lease: 30_000, signal: request.signal });
  }
}

export class LongLeasesForWaiters extends DistantBackend {
  override acquire(request: AcquireRequest): Acquired {
    const lease = request.wait > 0 ? 30_000 : request.lease;
    return super.acquire({ ...copyOf(request), lease, signal: request.signal });
  }
}

export class OverlooksTheEndOfLeases extends DistantBackend {
  constructor(...[context, store, ...rest]: ConstructorParameters<typeof DistantBackend>) {
    const { clock } = context;
    store.use({
      now: () => clock.now(),
      uptime: () => clock.uptime(),
      wallTime: () => clock.wallTime(),
      setTimer: () => ({}),
      clearTimer: () => undefined,
    });
    super(context, store, ...rest);
  }
}

// Faults in waiting.

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
    // Checks a moment later whether the caller still wants the grant, and drops it otherwise.
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

/** Reports its own instance as the holder that blocks a request. */
export class NamesTheWrongHolder extends DistantBackend {
  override heldBy(): Holding {
    const { clock, instance } = this.surrounding;
    return { holders: 1, instance: instance.name, since: null, seenAt: clock.now() };
  }
}

/** Stores labels by key only. */
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
      // Returns the holders seen when the key was last held.
      holders: async (key, most) => {
        const seen = await board.holders(key, most);
        if (seen.length > 0) this.#seen.set(key, seen);
        return this.#seen.get(key) ?? [];
      },
    };
  }
}

// Faults in handling an unreachable backend, in key names, and in cleanup.

export class UnavailableIsBusy extends DistantBackend {
  override acquire(request: AcquireRequest): Acquired {
    return super.acquire(request).catch(() => 'busy' as const);
  }
}

export class RefusalIsOutage extends DistantBackend {
  override refusal({ key }: AcquireRequest): LockError {
    return new LockUnavailableError('No permission.', { key });
  }
}

export class UnansweredIsLost extends DistantBackend {
  override async renew(request: AcquireRequest, lease: number): Promise<RenewOutcome> {
    const outcome = await super.renew(request, lease);
    return outcome === 'unknown' ? 'lost' : outcome;
  }
}

export class NeverRecovers extends DistantBackend {
  override onRestored(): void {
    this.cable.cutOff();
  }
}

export class SendsAsksAgainAfterAnOutage extends DistantBackend {
  readonly #unsent: AcquireRequest[] = [];

  override acquire(request: AcquireRequest): Acquired {
    const { signal } = new AbortController();
    if (!this.isConnected) this.#unsent.push({ ...copyOf(request), wait: 0, signal });
    return super.acquire(request);
  }

  override onRestored(): void {
    super.onRestored();
    this.surrounding.clock.setTimer(() => {
      for (const request of this.#unsent.splice(0)) void super.acquire(request);
    }, 20);
  }
}

export class TimersInTheConstructor extends DistantBackend {
  static readonly #timers = new Set<NodeJS.Timeout>();

  constructor(...terms: ConstructorParameters<typeof DistantBackend>) {
    super(...terms);
    // Several timers, because the kit counts handles and one of the test runner's own timers may end meanwhile. They
    // outlast the kit's check.
    for (let count = 0; count < 5; count += 1) {
      TimersInTheConstructor.#timers.add(setTimeout(() => undefined, 600_000));
    }
  }

  /** Clears the timers, which would otherwise keep the tests alive. */
  static clear(): void {
    for (const timer of TimersInTheConstructor.#timers) clearTimeout(timer);
  }
}

export class TimerThatStays extends DistantBackend {
  override connect(): Promise<void> {
    const tick = () => {
      this.surrounding.clock.setTimer(tick, 1_000);
    };
    tick();
    return super.connect();
  }
}

export class KeepsARecordOfEachLock extends DistantBackend {
  override async acquire(request: AcquireRequest): Acquired {
    const { signal } = request;
    await super.acquire({ ...copyOf(request), key: `seen:${request.id}`, lease: 86_400_000, signal });
    return super.acquire(request);
  }
}

export class NoNamespace extends DistantBackend {
  constructor(...[context, ...rest]: ConstructorParameters<typeof DistantBackend>) {
    super({ ...context, namespace: 'lock' }, ...rest);
  }
}

export function renamed(rename: (key: string) => string) {
  return class extends DistantBackend {
    override acquire(request: AcquireRequest): Acquired {
      const { key, signal } = request;
      return super.acquire({ ...copyOf(request), key: rename(key), signal });
    }
    override renew(request: AcquireRequest, lease: number): Promise<RenewOutcome> {
      const { key, signal } = request;
      return super.renew({ ...copyOf(request), key: rename(key), signal }, lease);
    }
    override release(request: AcquireRequest, options: ReleaseOptions): Promise<ReleaseOutcome> {
      const { key, signal } = request;
      return super.release({ ...copyOf(request), key: rename(key), signal }, options);
    }
  };
}

export class WithoutFencing extends DistantBackend {
  override readonly capabilities: LockCapabilities;

  constructor(...terms: ConstructorParameters<typeof DistantBackend>) {
    super(...terms);
    const [, , , queue] = terms;
    this.capabilities = {
      ...{ shared: true, fencing: false, lease: 'per-lock', minHold: true, forceRelease: true, queue, fair: true },
    };
  }
}

// Faults in the list of all locks.

type Query = Parameters<DistantBackend['list']>[0];

export class ListsItsFirstPage extends DistantBackend {
  override async *list(query: Query): AsyncIterable<LockInfo> {
    let count = 0;
    for await (const lock of super.list(query)) {
      if (count === 500) return;
      count += 1;
      yield lock;
    }
  }
}

export class ListsTwice extends DistantBackend {
  override async *list(query: Query): AsyncIterable<LockInfo> {
    yield* super.list(query);
    yield* super.list(query);
  }
}

export class ReadsPrefixesAsPatterns extends DistantBackend {
  override async *list({ prefix }: Query): AsyncIterable<LockInfo> {
    const pattern = new RegExp(
      `^${prefix
        .replace(/[[\]%]/g, '\\$&')
        .replaceAll('*', '.*')
        .replaceAll('_', '.')}`,
    );
    for await (const lock of super.list({ prefix: '' })) if (pattern.test(lock.key)) yield lock;
  }
}

export class ListsWithoutNames extends DistantBackend {
  override async *list(query: Query): AsyncIterable<LockInfo> {
    for await (const lock of super.list(query)) yield { ...lock, instances: lock.instances.map(() => 'somebody') };
  }
}

export class InspectsWithoutNames extends DistantBackend {
  override async inspect(key: string): Promise<LockInfo | null> {
    const info = await super.inspect(key);
    return info && { ...info, instances: info.instances.map(() => 'somebody') };
  }
}

export class ListsRetainedKeysAsHeld extends DistantBackend {
  override async *list(query: Query): AsyncIterable<LockInfo> {
    for await (const lock of super.list(query)) yield { ...lock, state: 'held' };
  }
}
