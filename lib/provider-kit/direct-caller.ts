import assert from 'node:assert/strict';
import { validUntil } from '../core/toolkit/validity.js';
import {
  type AcquireRequest,
  type BackendEvent,
  type Grant,
  type Instance,
  type LockBackend,
  type LockProvider,
  type ReleaseOptions,
  type ReleaseOutcome,
  type RenewOutcome,
} from '../api/lock-provider.js';
import { type Clock } from '../api/clock.js';
import { type Random } from '../api/random.js';
import type { LimitShare, LockMode } from '../api/lock-mode.js';

/** How a case asks. What it leaves open: a new request that wants the key exclusively for half a minute, at once or not. */
export interface AskOptions {
  /** Asks again for this one, which has its own terms but for `wait` and `signal`. */
  readonly request?: DirectRequest;
  readonly mode?: LockMode;
  /** Makes the mode `limited`. */
  readonly limited?: LimitShare;
  readonly lease?: number;
  readonly minHold?: number;
  readonly wait?: number;
  /** Aborts when the caller leaves before its wait is over. */
  readonly signal?: AbortSignal;
}

/** A grant, and the request that it was granted to. */
export interface DirectGrant extends Grant {
  readonly request: DirectRequest;
}

const CALM_LEASE = 30_000;

/** A request of a case: it remembers what the backend has told it. */
export class DirectRequest implements AcquireRequest {
  readonly mode: LockMode;
  readonly limited: LimitShare | undefined;
  readonly lease: number;
  readonly minHold: number;
  readonly otherKeysHeld = 0;
  readonly callers = 1;
  after: DirectRequest | undefined;
  state: unknown;
  wait = 0;
  signal: AbortSignal = new AbortController().signal;
  /** The backend has told it that it waits. */
  isQueued = false;
  readonly since: number;

  constructor(
    readonly key: string,
    readonly id: string,
    { limited, mode, lease = CALM_LEASE, minHold = 0 }: AskOptions,
    clock: Clock,
  ) {
    this.mode = limited ? 'limited' : (mode ?? 'exclusive');
    this.limited = limited;
    this.lease = lease;
    this.minHold = minHold;
    this.since = clock.now();
  }

  waits(): void {
    this.isQueued = true;
  }

  lost(): void {
    // The cases find a loss by the next renewal or release.
  }
}

/** Calls a backend as the core does, with nothing of the core between: for what the core relies on. */
export class DirectCaller {
  constructor(
    /** The provider that the harness made, cuts off and restores. */
    readonly provider: LockProvider,
    readonly backend: LockBackend,
    readonly events: readonly BackendEvent[],
    readonly instance: Instance,
    private readonly clock: Clock,
    private readonly random: Random,
  ) {}

  /** A request that was not sent yet. */
  request(key: string, terms: AskOptions = {}): DirectRequest {
    return new DirectRequest(key, this.random.id(), terms, this.clock);
  }

  /** Asks, and checks what must be true of every grant. */
  async ask(key: string, terms: AskOptions = {}): Promise<DirectGrant | 'busy'> {
    const { request = this.request(key, terms), wait = 0, signal } = terms;
    // The core aborts when the wait is over, so backends need no timer for it.
    const leaving = new AbortController();
    const leave = () => {
      leaving.abort();
    };
    signal?.addEventListener('abort', leave, { once: true });
    const timer = wait > 0 ? this.clock.setTimer(leave, wait) : undefined;
    request.wait = wait;
    request.signal = leaving.signal;
    try {
      const answer = await this.backend.acquire(request);
      assert.notEqual(answer, 'not-asked', 'a request that names no other is always asked for');
      if (typeof answer === 'string') return 'busy';
      this.#assertSound(answer, request);
      return { ...answer, request };
    } finally {
      if (timer) this.clock.clearTimer(timer);
      signal?.removeEventListener('abort', leave);
    }
  }

  /** Asks for these in one tick, for each behind the one before it. */
  askInChain(requests: readonly DirectRequest[], wait = 0): readonly Promise<Grant | 'busy' | 'not-asked'>[] {
    return requests.map((request, index) => {
      request.wait = wait;
      request.after = requests[index - 1];
      return this.backend.acquire(request);
    });
  }

  /** Asks for what must be granted. */
  async take(key: string, terms?: AskOptions): Promise<DirectGrant> {
    return granted(await this.ask(key, terms), key);
  }

  /** Fails unless somebody else has the key. */
  async assertBusy(key: string, terms?: AskOptions): Promise<void> {
    const answer = await this.ask(key, terms);
    assert.equal(answer === 'busy' ? 'busy' : 'granted', 'busy', `"${shortened(key)}" should be busy`);
  }

  renew(grant: DirectGrant, lease = grant.lease): Promise<RenewOutcome> {
    return this.backend.renew(grant.request, lease);
  }

  /** Renews what must still be held. */
  async assertRenewable(grant: DirectGrant): Promise<void> {
    const outcome = await this.renew(grant);
    assert.equal(typeof outcome, 'object', `the hold should be renewed, but was answered ${JSON.stringify(outcome)}`);
  }

  release(of: DirectGrant | DirectRequest, options: Partial<ReleaseOptions> = {}): Promise<ReleaseOutcome> {
    const request = 'request' in of ? of.request : of;
    return this.backend.release(request, { keepFor: 0, failed: false, ...options });
  }

  #assertSound(grant: Grant, asked: AcquireRequest): void {
    const now = this.clock.now();
    assert.ok(grant.lease > 0, 'a grant has the time for which the backend keeps it');
    assert.ok(grant.validUntil > now, `a grant is valid when it arrives, but ended ${now - grant.validUntil} ms ago`);
    // Counted from the sending. When that was only the provider knows, but surely not after the answer.
    const latest = validUntil(now, grant.lease);
    assert.ok(
      grant.validUntil <= latest,
      `a grant is believed no longer than its lease less the margin, but ${grant.validUntil - latest} ms longer`,
    );
    const token = this.backend.capabilities.fencing && asked.mode !== 'limited' ? 'bigint' : 'object';
    assert.equal(
      typeof grant.fencingToken,
      token,
      'there is a token where fencing is claimed, except of limited locks, else null',
    );
  }
}

function shortened(key: string): string {
  return key.length > 40 ? `${key.slice(0, 40)}…` : key;
}

/** The grant that `answer` must be. */
export function granted<T extends Grant>(answer: T | 'busy', key = 'the key'): T {
  assert.ok(answer !== 'busy', `"${shortened(key)}" should be granted, but is busy`);
  return answer;
}
