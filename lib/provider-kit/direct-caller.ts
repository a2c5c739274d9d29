import assert from 'node:assert/strict';
import { validUntil } from '../core/toolkit/validity.js';
import {
  type AcquireRequest,
  type Grant,
  type Holder,
  type Instance,
  type LockBackend,
  type LockProvider,
  type BackendEvent,
  type ReleaseOptions,
  type ReleaseOutcome,
  type RenewOutcome,
} from '../api/lock-provider.js';
import { type Clock } from '../api/clock.js';
import { type Random } from '../api/random.js';
import type { LimitTerms, LockMode } from '../api/lock-options.js';

/** How a case asks. What it leaves open: a new holder that wants the key exclusively for half a minute, at once or not. */
export interface AskTerms {
  readonly holder?: string;
  readonly mode?: LockMode;
  /** Makes the mode `limited`. */
  readonly limited?: LimitTerms;
  readonly lease?: number;
  readonly minHold?: number;
  readonly wait?: number;
  /** Aborts when the caller leaves before its wait is over. */
  readonly signal?: AbortSignal;
}

const CALM_LEASE = 30_000;

/** Calls a backend as the core does, with nothing of the core between: for what the core relies on. */
export class DirectCaller {
  constructor(
    /** What the harness made: what it cuts off and restores. */
    readonly provider: LockProvider,
    readonly backend: LockBackend,
    readonly events: readonly BackendEvent[],
    readonly instance: Instance,
    private readonly clock: Clock,
    private readonly random: Random,
  ) {}

  /** Asks, and checks what must be true of every grant. */
  async ask(key: string, terms: AskTerms = {}): Promise<Grant | 'busy'> {
    const { holder = this.random.id(), limited, lease = CALM_LEASE, minHold = 0, wait = 0 } = terms;
    const { clock } = this;
    const mode = limited ? 'limited' : (terms.mode ?? 'exclusive');
    // The core aborts when the wait is over, so backends need no timer for it.
    const leaving = new AbortController();
    const leave = () => {
      leaving.abort();
    };
    terms.signal?.addEventListener('abort', leave, { once: true });
    const timer = wait > 0 ? this.clock.setTimer(leave, wait) : undefined;
    const { signal } = leaving;
    const startedAt = clock.now();
    const request: AcquireRequest = {
      ...{ key, holder, mode, limited, lease, minHold, wait, signal },
      renew: true,
      callers: 1,
      get age() {
        return clock.now() - startedAt;
      },
    };
    try {
      const answer = await this.backend.acquire(request);
      if (answer !== 'busy') this.#assertSound(answer, request);
      return answer;
    } finally {
      if (timer) this.clock.clearTimer(timer);
      terms.signal?.removeEventListener('abort', leave);
    }
  }

  /** Asks for what must be granted. */
  async take(key: string, terms?: AskTerms): Promise<Grant> {
    return granted(await this.ask(key, terms), key);
  }

  /** Fails unless somebody else has the key. */
  async assertBusy(key: string, terms?: AskTerms): Promise<void> {
    const answer = await this.ask(key, terms);
    assert.equal(answer === 'busy' ? 'busy' : 'granted', 'busy', `"${shortened(key)}" should be busy`);
  }

  renew(grant: Grant, lease = grant.lease): Promise<RenewOutcome> {
    return this.backend.renew(grant, lease);
  }

  /** Renews what must still be held. */
  async assertRenewable(grant: Grant): Promise<void> {
    const outcome = await this.renew(grant);
    assert.equal(typeof outcome, 'object', `the hold should be renewed, but was answered ${JSON.stringify(outcome)}`);
  }

  release(holder: Holder, options: Partial<ReleaseOptions> = {}): Promise<ReleaseOutcome> {
    return this.backend.release(holder, { keepFor: 0, failed: false, ...options });
  }

  /** An id that nobody has yet, for attempts that a case has to name before they are answered. */
  newHolder(): string {
    return this.random.id();
  }

  /** Whether the backend has reported that this attempt is queued. */
  isQueued(holder: string): boolean {
    return this.events.some((event) => event.type === 'waiting' && event.holder === holder);
  }

  #assertSound(grant: Grant, asked: AcquireRequest): void {
    const now = this.clock.now();
    assert.deepEqual([grant.key, grant.holder, grant.mode], [asked.key, asked.holder, asked.mode], 'the grant is ours');
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
export function granted(answer: Grant | 'busy', key = 'the key'): Grant {
  assert.ok(answer !== 'busy', `"${shortened(key)}" should be granted, but is busy`);
  return answer;
}
