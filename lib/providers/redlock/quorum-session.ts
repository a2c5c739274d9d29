import {
  type AcquireRequest,
  type Finding,
  type Grant,
  type Holder,
  type ProviderContext,
  type ReleaseManner,
  type ReleaseOutcome,
  type RenewOutcome,
} from '../../api/lock-provider.js';
import { HolderTable } from '../../core/toolkit/holder-table.js';
import { validUntil } from '../../core/toolkit/validity.js';
import { LockUnavailableError } from '../../api/errors.js';
import type { LockInfo } from '../../api/lock-info.js';
import type { RedisConnection } from '../redis/redis-client.js';
import { Candidate, type Election, type QuorumGrant } from './candidate.js';
import { Electorate } from './electorate.js';
import { majorityOf, type PollTerms } from './poll.js';
import { Census, Deposition, Extension, RepeatedAsk, Resignation } from './questions.js';
import { examineNodes } from './quorum-doctor.js';
import { QuorumKeyLayout } from './quorum-key-layout.js';
import { NO_ROUND, NO_TOKEN, PARKED, roundDigits, tokenDigits, wholeMs } from './quorum-script.js';
import type { RedlockSettings } from './redlock-options.js';
import { TokenEstimate } from './token-estimate.js';
import { Votes } from './votes.js';

/** The share of a lease that a node may take to answer: a round must leave most of it. */
const SHARE_OF_LEASE = 0.1;

/** A provider at work, from `start` to `stop`. */
export class QuorumSession {
  readonly #layout: QuorumKeyLayout;
  readonly #electorate: Electorate;
  readonly #election: Election;
  readonly #candidates = new HolderTable<Candidate>();
  /** Who asks for a lock, by the lock: the engine lets one waiter a key ask. */
  readonly #asking = new Map<string, Candidate>();
  #rounds = 0;

  constructor(
    private readonly context: ProviderContext,
    connections: readonly RedisConnection[],
    private readonly settings: RedlockSettings,
  ) {
    const { patience, maxLease, delayedRestart } = settings;
    this.#layout = new QuorumKeyLayout(context.namespace);
    this.#electorate = new Electorate(context, connections, this.#layout, patience, maxLease, delayedRestart);
    this.#election = {
      context,
      electorate: this.#electorate,
      estimate: new TokenEstimate(),
      termsFor: (lease) => this.#termsFor(lease),
      hasForgetful: false,
      nextRound: () => (this.#rounds += 1),
    };
  }

  connect(): Promise<void> {
    return this.#electorate.connect();
  }

  async acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    const { key, holder } = request;
    const lock = this.#layout.lockOf(key);
    const candidate = new Candidate(this.#election, lock, request);
    this.#candidates.set(holder, candidate);
    this.#asking.set(lock, candidate);
    try {
      return await candidate.run();
    } finally {
      if (this.#candidates.get(holder) === candidate) this.#candidates.delete(holder);
      if (this.#asking.get(lock) === candidate) this.#asking.delete(lock);
    }
  }

  /** Answers as soon as a majority has spoken for this hold, whatever other nodes and other holds do. */
  async renew(grant: Grant, lease: number): Promise<RenewOutcome> {
    const { holder, fencingToken } = grant;
    // A grant that is none of ours has no votes, so it is lost.
    const { keptUntil = 0, votes = new Votes() } = grant as Partial<QuorumGrant>;
    const lock = this.#layout.lockOf(grant.key);
    const ms = wholeMs(Math.max(lease, keptUntil - this.context.clock.now()));
    const terms = this.#termsFor(lease);
    const extension = new Extension(lock, ['E', holder, ms, NO_TOKEN, NO_ROUND], terms, votes, (seat) => {
      if (votes.isReleased) return;
      const round = roundDigits(this.#election.nextRound());
      const args = ['A', holder, ms, tokenDigits(Number(fencingToken)), round] as const;
      void this.#electorate.ask(new RepeatedAsk(seat, lock, args, terms, votes));
    });
    const outcome = await this.#electorate.ask(extension);
    return outcome === 'given' ? { validUntil: validUntil(extension.sentAt, lease) } : outcome;
  }

  async release(holder: Holder | QuorumGrant, { keepFor }: ReleaseManner): Promise<ReleaseOutcome> {
    const candidate = this.#candidates.get(holder.holder);
    candidate?.withdraw();
    const votes = 'votes' in holder ? holder.votes : candidate?.votes;
    if (votes) votes.isReleased = true;
    const lock = this.#layout.lockOf(holder.key);
    const args = ['R', holder.holder, wholeMs(keepFor), NO_TOKEN, NO_ROUND] as const;
    const outcome = this.#electorate.ask(new Resignation(lock, args, this.#terms, votes));
    this.#asking.get(lock)?.hurry();
    return outcome;
  }

  async inspect(key: string): Promise<LockInfo | null> {
    const votes = await this.#electorate.ask(
      new Census(this.#layout.lockOf(key), ['I', '', '0', NO_TOKEN, NO_ROUND], this.#terms),
    );
    if (votes === 'unknown') throw this.#unavailable(key);
    if (votes === 'nobody') return null;
    const left = votes.map((vote) => vote.left).sort((a, b) => b - a);
    const tokens = votes.map(({ token }) => token);
    return {
      key,
      state: votes[0]?.holder === PARKED ? 'parked' : 'held',
      mode: 'exclusive',
      holders: votes[0]?.holder === PARKED ? 0 : 1,
      waiters: null,
      expiresIn: left[majorityOf(this.settings.nodes.length) - 1] ?? 0,
      fencingToken: tokens.reduce((largest, token) => (token > largest ? token : largest), 0n),
    };
  }

  async forceRelease(key: string): Promise<boolean> {
    const outcome = await this.#electorate.ask(
      new Deposition(this.#layout.lockOf(key), ['F', '', '0', NO_TOKEN, NO_ROUND], this.#terms),
    );
    if (outcome === 'unknown') throw this.#unavailable(key);
    return outcome;
  }

  check(): Promise<Finding[]> {
    return examineNodes(this.#electorate.nodes, this.#layout, this.settings.delayedRestart);
  }

  async close(): Promise<void> {
    for (const candidate of this.#candidates.values()) candidate.withdraw();
    await this.#electorate.close();
  }

  get #terms(): PollTerms {
    return this.#termsFor(Infinity);
  }

  #termsFor(lease: number): PollTerms {
    const { nodes, patience } = this.settings;
    return {
      seats: nodes.length,
      clock: this.context.clock,
      patience: Math.min(patience, lease * SHARE_OF_LEASE),
    };
  }

  #unavailable(key: string): LockUnavailableError {
    const { name } = this.context;
    return new LockUnavailableError(
      `Lock "${key}" of provider "${name}": no majority of the Redis nodes answered; check the nodes and their logs.`,
      { key, provider: name },
    );
  }
}
