import { LockCapacityError } from '../../api/errors.js';
import type { LockEvent } from '../../api/lock-events.js';
import type { BackendEvent } from '../../api/lock-provider.js';
import { nameOf } from '../events/subject.js';
import type { Hold } from '../hold/hold.js';
import type { ProviderCore } from '../provider-core.js';
import { HolderTable } from '../toolkit/holder-table.js';
import { AcquireAttempt } from './acquire-attempt.js';
import type { AcquireTerms } from './acquire-terms.js';

/** The callers of this process that acquire a key of one provider. */
export class Waiters {
  readonly #byHolder = new HolderTable<AcquireAttempt>();
  readonly #countOf = new HolderTable<number>();

  constructor(
    private readonly provider: ProviderCore,
    /** How many may wait for one key. */
    private readonly limit: number,
  ) {
    provider.observe((event, isLocal) => {
      this.#onEvent(event, isLocal);
    });
  }

  /** Acquires one key, and waits for it as long as the terms allow. @throws LockCapacityError when too many wait for it already */
  acquire(terms: AcquireTerms): Promise<Hold> {
    this.#count(terms.subject);
    this.provider.releases.begin();
    return new AcquireAttempt(this.provider, terms, this.#byHolder, this.#ended).run();
  }

  get terms(): AcquireTerms[] {
    return this.#byHolder.values().map(({ terms }) => terms);
  }

  /** Sends callers away: all, or those that hold nothing. */
  dismiss(which: 'all' | 'without-locks', errorFor: (subject: LockEvent) => Error): void {
    for (const attempt of this.#byHolder.values()) {
      const { around, subject } = attempt.terms;
      if (which === 'all' || !around.some((lock) => lock.isHeld())) attempt.dismiss(errorFor(subject));
    }
  }

  readonly #ended = ({ key }: LockEvent): void => {
    const count = (this.#countOf.get(key) ?? 0) - 1;
    if (count > 0) this.#countOf.set(key, count);
    else this.#countOf.delete(key);
    this.provider.releases.end();
  };

  #count(subject: LockEvent): void {
    const count = this.#countOf.get(subject.key) ?? 0;
    if (count >= this.limit) {
      throw new LockCapacityError(
        `${nameOf(subject)} has ${count} callers waiting in this process already: shed load, shorten "wait", or raise maxWaiters.`,
        subject,
      );
    }
    this.#countOf.set(subject.key, count + 1);
  }

  #onEvent(event: BackendEvent, isLocal: boolean): void {
    if (event.type !== 'lost' && event.type !== 'waiting') return;
    const attempt = this.#byHolder.get(event.holder);
    if (!attempt) return;
    if (event.type === 'lost') attempt.onRevoked();
    else {
      if (!isLocal) this.provider.answered(attempt.terms.subject.key);
      attempt.onQueued(event.otherLimit);
    }
  }
}
