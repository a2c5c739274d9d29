import type { LockInfo } from '../../api/lock-info.js';
import type {
  AcquireRequest,
  BackendContext,
  Diagnostic,
  Grant,
  LockBackend,
  LockCapabilities,
  ReleaseOptions,
  ReleaseOutcome,
  RenewOutcome,
} from '../../api/lock-provider.js';
import { Attempt } from './attempt.js';
import { diagnoseNodes } from './diagnostics.js';
import { inspect } from './inspection.js';
import { RedlockKeyLayout } from './key-layout.js';
import { NO_ROUND, NO_TOKEN, wholeMs } from './lock-script.js';
import { Nodes } from './nodes.js';
import { type Agreement, agreement } from './poll.js';
import type { RedlockSettings } from './redlock-options.js';
import { renew } from './renewal.js';

/** The locks of one application on the nodes. */
export class RedlockBackend implements LockBackend {
  readonly capabilities: LockCapabilities;
  readonly #layout: RedlockKeyLayout;
  readonly #nodes: Nodes;
  /** The attempts that ask for a lock, by the lock: the core makes one request per key and number of other keys held. */
  readonly #byLock = new Map<string, Set<Attempt>>();

  constructor(
    private readonly context: BackendContext,
    private readonly settings: RedlockSettings,
  ) {
    this.#layout = new RedlockKeyLayout(context.namespace);
    this.#nodes = new Nodes(context, settings, this.#layout);
    this.capabilities = {
      shared: false,
      fair: false,
      fencing: true,
      lease: 'per-lock',
      maxLease: settings.maxLease,
      minHold: true,
      forceRelease: true,
    };
  }

  connect(): Promise<void> {
    return this.#nodes.connect();
  }

  async acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    const lock = this.#layout.lockOf(request.key);
    const attempt = attemptOf(request) ?? new Attempt(this.context, this.#nodes, lock, request);
    request.state = attempt;
    const asking = this.#byLock.get(lock) ?? new Set();
    this.#byLock.set(lock, asking.add(attempt));
    try {
      return await attempt.run();
    } finally {
      asking.delete(attempt);
      if (asking.size === 0) this.#byLock.delete(lock);
    }
  }

  async renew(request: AcquireRequest, lease: number): Promise<RenewOutcome> {
    const attempt = attemptOf(request);
    return attempt?.grant ? renew(this.context, this.#nodes, attempt, attempt.grant, lease) : 'lost';
  }

  async release(request: AcquireRequest, { keepFor }: ReleaseOptions): Promise<ReleaseOutcome> {
    const attempt = attemptOf(request);
    if (!attempt) return 'lost';
    const { lock, votes } = attempt;
    attempt.leave();
    votes.isReleased = true;
    const args = ['R', request.id, wholeMs(keepFor), NO_TOKEN, NO_ROUND] as const;
    const { outcome } = this.#nodes.poll({ lock, args, votes }, agreement);
    // Sent behind the release.
    for (const other of this.#byLock.get(lock) ?? []) other.askNow();
    return RELEASED[await outcome];
  }

  inspect(key: string): Promise<LockInfo | null> {
    return inspect(this.#nodes, key, this.#layout.lockOf(key));
  }

  async forceRelease(key: string): Promise<boolean> {
    const lock = this.#layout.lockOf(key);
    const poll = this.#nodes.poll({ lock, args: ['F', '', '0', NO_TOKEN, NO_ROUND] }, agreement);
    const outcome = await poll.outcome;
    if (outcome === 'unknown') throw this.#nodes.unavailable(key, poll.cause);
    return outcome !== 'refused';
  }

  diagnose(): Promise<Diagnostic[]> {
    return diagnoseNodes(this.#nodes.all, this.#layout, this.settings.delayedRestart);
  }

  async close(): Promise<void> {
    for (const attempts of this.#byLock.values()) for (const attempt of attempts) attempt.leave();
    await this.#nodes.close();
  }
}

function attemptOf({ state }: AcquireRequest): Attempt | undefined {
  return state instanceof Attempt ? state : undefined;
}

/** The release of a lock that a majority of the nodes had the vote for, or not. */
const RELEASED: Readonly<Record<Agreement, ReleaseOutcome>> = {
  agreed: 'released',
  refused: 'lost',
  // A majority is certainly without the vote by now.
  undecided: 'released',
  unknown: 'unknown',
};
