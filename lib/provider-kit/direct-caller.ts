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

/**
 * Options for a case's request. Default: a new request for exclusive use of the key for half a minute, without waiting.
 */
export interface AskOptions {
  /** Repeats this request with the same options, except for `wait` and `signal`. */
  readonly request?: DirectRequest;
  readonly mode?: LockMode;
  /** Sets the mode to `limited`. */
  readonly limited?: LimitShare;
  readonly lease?: number;
  readonly minHold?: number;
  readonly wait?: number;
  /** Aborts when the caller leaves before its wait ends. */
  readonly signal?: AbortSignal;
}

/** A grant and its request. */
export interface DirectGrant extends Grant {
  readonly request: DirectRequest;
}

const CALM_LEASE = 30_000;

/** A case's request, which records what the backend has reported. */
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
  /** Whether the backend has reported that this request is waiting. */
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
    // The cases detect a loss at the next renewal or release.
  }
}

/** Calls a backend directly, as the core does, to test what the core relies on. */
export class DirectCaller {
  constructor(
    /** The provider that the harness creates, cuts off, and restores. */
    readonly provider: LockProvider,
    readonly backend: LockBackend,
    readonly events: readonly BackendEvent[],
    readonly instance: Instance,
    private readonly clock: Clock,
    private readonly random: Random,
  ) {}

  /** A request that has not been sent yet. */
  request(key: string, terms: AskOptions = {}): DirectRequest {
    return new DirectRequest(key, this.random.id(), terms, this.clock);
  }

  /** Sends a request and checks what must be true of every grant. */
  async ask(key: string, terms: AskOptions = {}): Promise<DirectGrant | 'busy'> {
    const { request = this.request(key, terms), wait = 0, signal } = terms;
    // The core aborts the request when the wait ends, so backends need no timer for it.
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

  /** Sends these requests in one tick, each linked to the previous one. */
  askInChain(requests: readonly DirectRequest[], wait = 0): readonly Promise<Grant | 'busy' | 'not-asked'>[] {
    return requests.map((request, index) => {
      request.wait = wait;
      request.after = requests[index - 1];
      return this.backend.acquire(request);
    });
  }

  /** Sends a request that must be granted. */
  async take(key: string, terms?: AskOptions): Promise<DirectGrant> {
    return granted(await this.ask(key, terms), key);
  }

  /** Fails unless someone else holds the key. */
  async assertBusy(key: string, terms?: AskOptions): Promise<void> {
    const answer = await this.ask(key, terms);
    assert.equal(answer === 'busy' ? 'busy' : 'granted', 'busy', `"${shortened(key)}" should be busy`);
  }

  renew(grant: DirectGrant, lease = grant.lease): Promise<RenewOutcome> {
    return this.backend.renew(grant.request, lease);
  }

  /** Renews a lock that must still be held. */
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
    // The lease counts from when the request was sent. Only the provider knows that time, but it can't be after the
    // response.
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

/** Returns `answer`, which must be a grant. */
export function granted<T extends Grant>(answer: T | 'busy', key = 'the key'): T {
  assert.ok(answer !== 'busy', `"${shortened(key)}" should be granted, but is busy`);
  return answer;
}
