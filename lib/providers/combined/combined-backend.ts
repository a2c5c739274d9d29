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
import { commonCapabilities, timeoutsOf } from '../shared/members.js';
import { probeFor, UNUSED } from '../shared/probe.js';
import { CombinedRequest } from './combined-request.js';

// This key is released at startup to see which members respond.
const PROBE_KEY = 'nestjs-distributed-lock:probe';

/** Locks each key on several members, for one application. */
export class CombinedBackend implements LockBackend<CombinedRequest> {
  readonly capabilities: LockCapabilities;
  /** Members are called one by one and each may time out, so this is the sum of their timeouts. */
  readonly commandTimeout: number | undefined;
  /** Defined only if all members support it. */
  readonly inspect?: (key: string) => Promise<LockInfo | null>;
  readonly forceRelease?: (key: string) => Promise<boolean>;
  readonly #releasing = new Set<Promise<ReleaseOutcome>>();

  constructor(
    private readonly context: BackendContext,
    /** In locking order. */
    private readonly members: ReadonlyMap<string, Member>,
  ) {
    const all = [...members.values()];
    // Members are locked in order, so the first one's queue decides. Their tokens can't be compared.
    this.capabilities = { ...commonCapabilities(all), fencing: false };
    const timeouts = timeoutsOf(all);
    this.commandTimeout = timeouts && timeouts.reduce((sum, each) => sum + each, 0);
    for (const member of all) {
      // A nested failover provider reports its own switches.
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
      `Lock provider "${name}" needs all of its providers, but ${silent.map((each) => `"${each}"`).join(', ')} did not respond.`,
      { provider: name },
    );
  }

  async acquire(request: AcquireRequest<CombinedRequest>): Promise<Grant | 'busy'> {
    const { clock, random } = this.context;
    for (;;) {
      // Creates a request with new ids, unless the previous attempt is still valid.
      const own = (request.state ??= new CombinedRequest(request, [...this.members.values()], clock, random));
      const answer = await own.acquire();
      if (typeof answer === 'object') return answer;
      // The request was released while in flight.
      if (request.state !== own) return 'busy';
      // The last known holder, because the request is gone when the core asks for it.
      if (answer === 'busy') request.seen = own.heldBy;
      request.state = undefined;
      const outcome = await this.#release(own, UNUSED);
      if (answer === 'busy' || hasLeft(request)) return 'busy';
      // A member lost its lock while this request waited for the next one. Start over, unless an unreleased lock could
      // block us.
      if (outcome === 'unknown') throw this.#unanswered(request.key);
    }
  }

  unansweredFor({ state }: AcquireRequest<CombinedRequest>): number {
    return state?.unansweredFor ?? 0;
  }

  heldBy(request: AcquireRequest<CombinedRequest>): Holding | null {
    return request.state ? request.state.heldBy : ((request.seen as Holding | null | undefined) ?? null);
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

  /** Waits for releases in flight. Timeouts limit this wait. The members close after this backend. */
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
      `A member of lock provider "${name}" did not respond to the release of "${key}". If it still holds the lock, the lock expires with its lease.`,
      { key, provider: name },
    );
  }
}

/** Releases a lock that no process holds, which has no effect. */
async function isReachable(member: Member, { random }: BackendContext): Promise<boolean> {
  try {
    // Some backends handle the release without contacting the server, but all of them contact it for `inspect`.
    await member.inspect?.(PROBE_KEY);
    const probe = probeFor(PROBE_KEY, random.id(), 0, new AbortController().signal);
    return (await member.request(probe).release(UNUSED)) !== 'unknown';
  } catch {
    return false;
  }
}

/** The key is held if any member holds it. */
async function inspect(members: readonly Member[], key: string): Promise<LockInfo | null> {
  for (const member of members) {
    const info = await member.inspect?.(key);
    if (info) return { ...info, fencingToken: null };
  }
  return null;
}

/**
 * Frees members in reverse order, as a release does. Succeeds if one member is freed: the holder then loses the lock
 * and releases the rest.
 */
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

/** Whether the caller's wait has ended. If so, the core may already have released the request's id. */
function hasLeft({ wait, signal }: AcquireRequest): boolean {
  return wait <= 0 || signal.aborted;
}
