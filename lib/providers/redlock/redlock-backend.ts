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
import { wholeMs } from '../../core/toolkit/validity.js';
import { RedlockRequest, WaitingRequests } from './redlock-request.js';
import { diagnoseNodes } from './redlock-diagnostics.js';
import { inspect } from './inspection.js';
import { RedlockKeyLayout } from './key-layout.js';
import { Code, NO_MS } from './lock-script.js';
import { RedlockNodes } from './nodes.js';
import { type Agreement, AgreementPoll } from './poll.js';
import type { RedlockSettings } from './redlock-options.js';
import { RedlockRenewal } from './renewal.js';

/** A Redlock provider's backend. */
export class RedlockBackend implements LockBackend<RedlockRequest> {
  readonly capabilities: LockCapabilities;
  readonly commandTimeout: number;
  readonly #layout: RedlockKeyLayout;
  /** Private because `util.inspect` would otherwise show a password. */
  readonly #settings: RedlockSettings;
  readonly #nodes: RedlockNodes;
  readonly #waiting = new WaitingRequests();

  constructor(
    private readonly context: BackendContext,
    settings: RedlockSettings,
  ) {
    this.commandTimeout = settings.commandTimeout;
    this.#layout = new RedlockKeyLayout(context.namespace);
    this.#settings = settings;
    this.#nodes = new RedlockNodes(context, settings, this.#layout);
    this.capabilities = {
      shared: false,
      fair: false,
      fencing: true,
      lease: 'per-lock',
      maxLease: settings.maxLease,
      minHold: true,
      forceRelease: true,
      ordered: true,
    };
  }

  connect(): Promise<void> {
    return this.#nodes.connect();
  }

  acquire(request: AcquireRequest<RedlockRequest>): Promise<Grant | 'busy'> {
    request.state ??= new RedlockRequest(
      this.context,
      this.#nodes,
      this.#waiting,
      this.#layout.lockOf(request.key),
      request,
    );
    return request.state.run();
  }

  unansweredFor({ state }: AcquireRequest<RedlockRequest>): number {
    return state?.unansweredFor ?? 0;
  }

  async renew({ state }: AcquireRequest<RedlockRequest>, lease: number): Promise<RenewOutcome> {
    return state?.grant ? new RedlockRenewal(state, state.grant, lease).run() : 'lost';
  }

  /** Reports whether a majority had voted for the lock. */
  async release({ id, state }: AcquireRequest<RedlockRequest>, { keepFor }: ReleaseOptions): Promise<ReleaseOutcome> {
    if (!state) return 'lost';
    const { lock, votes } = state;
    state.leave();
    votes.isReleased = true;
    const released = new AgreementPoll(this.#nodes, lock, [Code.release, id, wholeMs(keepFor)], votes).start();
    this.#waiting.retryNow(lock);
    return RELEASED[await released];
  }

  inspect(key: string): Promise<LockInfo | null> {
    return inspect(this.#nodes, key, this.#layout.lockOf(key), this.context.instance);
  }

  async forceRelease(key: string): Promise<boolean> {
    const lock = this.#layout.lockOf(key);
    const poll = new AgreementPoll(this.#nodes, lock, [Code.forceRelease, '', NO_MS]);
    const outcome = await poll.start();
    if (outcome === 'unknown') throw this.#nodes.unavailable(key, poll);
    return outcome !== 'refused';
  }

  diagnose(): Promise<Diagnostic[]> {
    return diagnoseNodes(this.#nodes.all, this.#layout, this.#settings.delayedRestart);
  }

  async close(): Promise<void> {
    this.#waiting.close();
    await this.#nodes.close();
  }
}

const RELEASED: Readonly<Record<Agreement, ReleaseOutcome>> = {
  agreed: 'released',
  refused: 'lost',
  // A majority of the nodes no longer has the vote.
  undecided: 'released',
  unknown: 'unknown',
};
