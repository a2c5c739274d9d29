import { LockUnavailableError } from '../../api/errors.js';
import type { LockInfo } from '../../api/lock-info.js';
import type {
  AcquireRequest,
  BackendContext,
  Grant,
  Holding,
  LockBackend,
  LockCapabilities,
  Member,
  ReleaseOptions,
  ReleaseOutcome,
  RenewOutcome,
} from '../../api/lock-provider.js';
import { timeoutsOf } from '../shared/members.js';
import { probeFor, UNUSED } from '../shared/probe.js';
import { CombinedRequest } from './combined-request.js';

// Released at the start, to see which members answer.
const PROBE_KEY = 'nestjs-distributed-lock:probe';

/** One lock in several members, in one application. */
export class CombinedBackend implements LockBackend<CombinedRequest> {
  readonly capabilities: LockCapabilities;
  /** They are asked one after the other, and each may be silent. */
  readonly commandTimeout: number | undefined;
  /** Present if all members have them. */
  readonly inspect?: (key: string) => Promise<LockInfo | null>;
  readonly forceRelease?: (key: string) => Promise<boolean>;
  /** The holders that have kept out requests which were refused: those keep nothing else here. */
  readonly #refused = new WeakMap<AcquireRequest, Holding | null>();
  readonly #releasing = new Set<Promise<ReleaseOutcome>>();

  constructor(
    private readonly context: BackendContext,
    /** In the order in which they are locked. */
    private readonly members: ReadonlyMap<string, Member>,
  ) {
    const all = [...members.values()];
    this.capabilities = capabilitiesOf(all.map(({ capabilities }) => capabilities));
    const timeouts = timeoutsOf(all);
    this.commandTimeout = timeouts && timeouts.reduce((sum, each) => sum + each, 0);
    for (const member of all) {
      // The switches of a member that is a failover are its own.
      member.observe((event) => {
        if (event.type !== 'failover') this.context.emit(event);
      });
    }
    if (!this.capabilities.forceRelease) return;
    this.inspect = (key) => inspect(all, key);
    this.forceRelease = (key) => forceRelease(all, key);
  }

  async connect(): Promise<void> {
    const answers = await Promise.all(
      Array.from(this.members, async ([name, member]) => ((await isReachable(member, this.context)) ? [] : [name])),
    );
    const silent = answers.flat();
    if (silent.length === 0) return;
    const { name } = this.context;
    throw new LockUnavailableError(
      `Lock provider "${name}" needs all of its providers, but ${silent.map((each) => `"${each}"`).join(', ')} did not answer.`,
      { provider: name },
    );
  }

  async acquire(request: AcquireRequest<CombinedRequest>): Promise<Grant | 'busy'> {
    const { clock, random } = this.context;
    for (;;) {
      // With new ids, if those that it had were released.
      const own = (request.state ??= new CombinedRequest(request, [...this.members.values()], clock, random));
      const answer = await own.acquire();
      if (typeof answer === 'object') return answer;
      // The request was released while it was in flight.
      if (request.state !== own) return 'busy';
      if (answer === 'busy') this.#refused.set(request, own.heldBy);
      request.state = undefined;
      const outcome = await this.#release(own, UNUSED);
      if (answer === 'busy' || hasLeft(request)) return 'busy';
      // Lost while it waited for the next member: again from the start, unless what it had may still be in its own way.
      if (outcome === 'unknown') throw this.#unanswered(request.key);
    }
  }

  unansweredFor({ state }: AcquireRequest<CombinedRequest>): number {
    return state?.unansweredFor ?? 0;
  }

  heldBy(request: AcquireRequest<CombinedRequest>): Holding | null {
    return request.state ? request.state.heldBy : (this.#refused.get(request) ?? null);
  }

  async renew({ state }: AcquireRequest<CombinedRequest>, lease: number): Promise<RenewOutcome> {
    return state?.renew(lease) ?? 'lost';
  }

  async release(request: AcquireRequest<CombinedRequest>, options: ReleaseOptions): Promise<ReleaseOutcome> {
    const { state } = request;
    if (!state) return 'lost';
    request.state = undefined;
    return this.#release(state, options);
  }

  /** Releases are bounded, and the members close after this backend. */
  async close(): Promise<void> {
    await Promise.all(this.#releasing);
  }

  #release(own: CombinedRequest, options: ReleaseOptions): Promise<ReleaseOutcome> {
    const release = own.release(options);
    this.#releasing.add(release);
    void release.finally(() => this.#releasing.delete(release));
    return release;
  }

  #unanswered(key: string): LockUnavailableError {
    const { name } = this.context;
    return new LockUnavailableError(
      `A provider of lock provider "${name}" did not answer the release of "${key}"; what it may still hold ends with its lease.`,
      { key, provider: name },
    );
  }
}

function capabilitiesOf(all: readonly LockCapabilities[]): LockCapabilities {
  const allCan = (capability: 'shared' | 'fair' | 'minHold' | 'forceRelease') =>
    all.every((capabilities) => capabilities[capability]);
  return {
    shared: allCan('shared'),
    // They are locked in order, so the first waiter of the first member is the first of all.
    fair: allCan('fair'),
    fencing: false,
    lease: all.every(({ lease }) => lease === 'per-lock') ? 'per-lock' : 'session',
    maxLease: Math.min(...all.map(({ maxLease = Infinity }) => maxLease)),
    minHold: allCan('minHold'),
    forceRelease: allCan('forceRelease'),
  };
}

/** Asks the member to release what nobody holds, which changes nothing. */
async function isReachable(member: Member, { random }: BackendContext): Promise<boolean> {
  try {
    // Some know without a question to their server that they hold nothing, but not what others hold.
    await member.inspect?.(PROBE_KEY);
    const probe = probeFor(PROBE_KEY, random.id(), 0, new AbortController().signal);
    return (await member.request(probe).release(UNUSED)) !== 'unknown';
  } catch {
    return false;
  }
}

/** A key that any member has is not free. */
async function inspect(members: readonly Member[], key: string): Promise<LockInfo | null> {
  for (const member of members) {
    const info = await member.inspect?.(key);
    if (info) return { ...info, fencingToken: null };
  }
  return null;
}

/** In reverse, as releases are. A holder that has lost one member has lost the lock and releases the others, so one is enough. */
async function forceRelease(members: readonly Member[], key: string): Promise<boolean> {
  const failures: unknown[] = [];
  let had = false;
  for (const member of members.toReversed()) {
    try {
      had = ((await member.forceRelease?.(key)) ?? false) || had;
    } catch (error) {
      failures.push(error);
    }
  }
  if (failures.length === members.length) throw failures[0];
  return had;
}

/** Whether its time is up, or it was sent away: then the core may have released its id already. */
function hasLeft({ wait, signal }: AcquireRequest): boolean {
  return wait <= 0 || signal.aborted;
}
