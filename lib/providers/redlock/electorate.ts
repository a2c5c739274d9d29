import { nextTick } from 'node:process';
import type { ProviderContext } from '../../api/lock-provider.js';
import { LockConfigError, LockUnavailableError } from '../../api/errors.js';
import type { RedisConnection } from '../redis/redis-client.js';
import { callOf, QuorumNode } from './node.js';
import { majorityOf, type Poll } from './poll.js';
import type { QuorumKeyLayout } from './quorum-key-layout.js';

type AnyPoll = Poll<unknown>;

// Client and servers work at the same time only when one call does not carry everything.
const OPERATIONS_A_CALL = 16;

/** The nodes together: what is asked of one is asked of all, at once. */
export class Electorate {
  readonly nodes: readonly QuorumNode[];
  #pending: AnyPoll[] = [];
  #hadMajority = false;
  #started = false;
  #stopping = false;
  #onMajority: (() => void) | undefined;

  constructor(
    private readonly context: ProviderContext,
    connections: readonly RedisConnection[],
    private readonly layout: QuorumKeyLayout,
    private readonly patience: number,
    maxLease: number,
    delayedRestart: boolean,
  ) {
    this.nodes = connections.map(
      (connection, seat) =>
        new QuorumNode(connection, seat, {
          context,
          counter: layout.counter,
          patience,
          maxLease,
          runKey: delayedRestart ? layout.run : undefined,
          isTaken: (runId, by) => this.nodes.some((node) => node !== by && node.runId === runId),
          onChange: () => {
            this.#onChange();
          },
        }),
    );
  }

  /**
   * Connects to all; a majority is enough.
   *
   * @throws LockConfigError when two nodes are one server, or one belongs to a Cluster. LockUnavailableError when no majority answers.
   */
  async connect(): Promise<void> {
    const majority = new Promise<void>((resolve) => (this.#onMajority = resolve));
    const tries = Promise.allSettled(this.nodes.map((node) => node.connect()));
    await Promise.race([tries, majority]);
    // The others have a moment more: a mistake in the addresses is better found now than later.
    await this.#within(tries);
    this.#started = true;
    const double = this.nodes.findIndex(({ isDouble }) => isDouble);
    if (double >= 0) {
      throw new LockConfigError(
        `Lock provider "${this.context.name}": node ${double + 1} is the same server as another node: a majority must be of independent servers.`,
        { provider: this.context.name },
      );
    }
    const clustered = this.nodes.findIndex(({ isClusterNode }) => isClusterNode);
    if (clustered >= 0) {
      throw new LockConfigError(
        `Lock provider "${this.context.name}": node ${clustered + 1} belongs to a Redis Cluster: a majority must be of independent servers; for a Cluster use RedisLockProvider.`,
        { provider: this.context.name },
      );
    }
    this.#hadMajority = this.#hasMajority();
    if (!this.#hadMajority) {
      throw new LockUnavailableError(
        `Lock provider "${this.context.name}" reaches ${this.#ready()} of ${this.nodes.length} Redis nodes, which is no majority: check their addresses and credentials, and that they are up.`,
        { provider: this.context.name, cause: this.#cause() },
      );
    }
  }

  /** Asks all nodes at the end of this tick, in the order of the calls. */
  ask<T>(poll: Poll<T>): Promise<T> {
    this.#pending.push(poll as AnyPoll);
    // After the promise jobs that are ready now: what they ask for travels in the same call.
    if (this.#pending.length === 1) nextTick(this.#flush);
    return poll.outcome;
  }

  async close(): Promise<void> {
    this.#stopping = true;
    // What was added in this tick is sent at its end.
    await new Promise<void>((resolve) => {
      nextTick(resolve);
    });
    await Promise.all(this.nodes.map((node) => node.close()));
  }

  readonly #flush = (): void => {
    const polls = this.#pending;
    this.#pending = [];
    for (let first = 0; first < polls.length; first += OPERATIONS_A_CALL) {
      this.#send(polls.length <= OPERATIONS_A_CALL ? polls : polls.slice(first, first + OPERATIONS_A_CALL));
    }
  };

  #send(polls: readonly AnyPoll[]): void {
    const now = this.context.clock.now();
    const args = callOf(this.layout.counter, polls);
    for (const poll of polls) poll.onSent(now);
    for (const node of this.nodes) {
      const mayVote = node.mayVote(now);
      if (mayVote && !polls.some((poll) => !poll.isFor(node.seat))) node.send(polls, args);
      else this.#sendSome(node, polls, mayVote);
    }
  }

  #sendSome(node: QuorumNode, polls: readonly AnyPoll[], mayVote: boolean): void {
    const some = polls.filter((poll) => {
      if (!poll.isFor(node.seat)) return false;
      if (mayVote || !poll.isVote) return true;
      poll.onFault(node.cause);
      return false;
    });
    if (some.length > 0) node.send(some, callOf(this.layout.counter, some));
  }

  #onChange(): void {
    const hasMajority = this.#hasMajority();
    if (hasMajority) this.#onMajority?.();
    if (!this.#started || this.#stopping || hasMajority === this.#hadMajority) return;
    this.#hadMajority = hasMajority;
    this.context.emit(hasMajority ? { type: 'recovered' } : { type: 'unavailable', cause: this.#cause() });
  }

  #ready(): number {
    return this.nodes.filter(({ isReady }) => isReady).length;
  }

  #hasMajority(): boolean {
    return this.#ready() >= majorityOf(this.nodes.length);
  }

  #cause(): unknown {
    return this.nodes.find(({ isReady }) => !isReady)?.cause;
  }

  async #within(work: Promise<unknown>): Promise<void> {
    const { clock } = this.context;
    let timer: object | undefined;
    const late = new Promise<void>((resolve) => {
      timer = clock.setTimer(resolve, this.patience, true);
    });
    await Promise.race([work, late]);
    if (timer) clock.clearTimer(timer);
  }
}
