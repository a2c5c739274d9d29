import type { ProviderContext } from '../../../engine/lock-provider.js';
import { CommandConnection } from '../command-connection.js';
import type { RedisConnection } from '../redis-client.js';
import type { Poll } from './poll.js';
import { Errand } from './questions.js';
import { QUORUM_SCRIPT, QUORUM_SCRIPT_SHA } from './quorum-script.js';

type AnyPoll = Poll<unknown>;

const DEBTS_A_CALL = 256;

/** What a node has to know of the others. */
export interface NodeSurroundings {
  readonly context: ProviderContext;
  readonly counter: string;
  /** How long the node may be silent while commands are out before its connection is made anew, in ms. */
  readonly patience: number;
  /** No vote stands for longer, in ms. */
  readonly maxLease: number;
  /** A node that has started less than this many ms ago does not vote: it may have forgotten a vote. 0 for any. */
  readonly probation: number;
  /** Whether another node is this same server. */
  isTaken(runId: string, by: QuorumNode): boolean;
  /** It has become ready for operations, or ceased to be. */
  onChange(): void;
}

/** One of the independent servers. */
export class QuorumNode {
  /** What the server calls itself; it changes with each start of it. */
  runId: string | undefined;
  /** It is the same server as another node, so it has no say. */
  isDouble = false;
  /** It refuses the keys of other nodes and fails over, so it has no say either. */
  isClusterNode = false;
  readonly #connection: CommandConnection;
  #ready = false;
  #votesFrom = Infinity;
  #refusal: unknown;
  #onIntroduced: (() => void) | undefined;
  #downSince: number;
  /** Releases that did not get through: the votes they end would stand for a lease, and a majority of such votes blocks the key. */
  #owed: Errand[] = [];

  constructor(
    connection: RedisConnection,
    private readonly surroundings: NodeSurroundings,
  ) {
    const { context, patience } = surroundings;
    this.#downSince = context.clock.now();
    this.#connection = new CommandConnection(connection, context.clock, context.logger, patience, {
      onUp: () => {
        void this.#introduce();
      },
      onDown: () => {
        this.runId = undefined;
        // From here on the connection says why: its probation may be over for long.
        this.#refusal = undefined;
        this.#become(false);
      },
    });
  }

  get isReady(): boolean {
    return this.#ready;
  }

  /** Why it does not answer or vote. */
  get cause(): unknown {
    return this.#refusal ?? this.#connection.cause;
  }

  /** Resolves when it is ready or has refused, and rejects when it cannot be reached; it then goes on trying by itself. */
  async connect(): Promise<void> {
    const introduced = new Promise<void>((resolve) => (this.#onIntroduced = resolve));
    await this.#connection.connect();
    await introduced;
  }

  ask(command: string, ...args: string[]): Promise<unknown> {
    return this.#connection.ask(command, ...args);
  }

  close(): Promise<void> {
    return this.#connection.close();
  }

  /** Sends the operations in one call. `args` are theirs, made once for all nodes. */
  send(polls: readonly AnyPoll[], args: readonly string[]): void {
    if (!this.#ready) {
      const cause = this.cause;
      this.#fail(polls, cause);
      return;
    }
    this.#call('evalsha', QUORUM_SCRIPT_SHA, polls, args);
  }

  /** Whether its vote counts yet. Otherwise it is asked for everything else. */
  mayVote(now: number): boolean {
    return now >= this.#votesFrom;
  }

  #call(command: 'evalsha' | 'eval', script: string, polls: readonly AnyPoll[], args: readonly string[]): void {
    this.#connection.send(
      command,
      [script, ...args],
      (reply) => {
        if (Array.isArray(reply)) {
          polls.forEach((poll, index) => {
            poll.onReply(reply[index]);
          });
        } else polls[0]?.onReply(reply);
      },
      (error) => {
        if (command === 'evalsha' && error instanceof Error && error.message.startsWith('NOSCRIPT')) {
          this.#teach(polls);
        } else this.#fail(polls, error);
      },
    );
  }

  #fail(polls: readonly AnyPoll[], cause: unknown): void {
    const { context, maxLease, patience } = this.surroundings;
    // Longer ago than a lease nothing of ours stands there.
    const mayStand = this.#ready || context.clock.now() - this.#downSince < maxLease;
    if (!mayStand) this.#owed = [];
    for (const poll of polls) {
      const [code, , ms] = poll.args;
      // A key that is to be parked stays taken by its vote instead.
      if (mayStand && (code === 'C' || (code === 'R' && ms === '0'))) {
        this.#owed.push(new Errand(poll.lock, poll.args, { seats: 1, clock: context.clock, patience }));
      }
      poll.onFault(cause);
    }
  }

  #settleDebts(): void {
    const owed = this.#owed;
    this.#owed = [];
    for (let first = 0; first < owed.length; first += DEBTS_A_CALL) {
      const some = owed.slice(first, first + DEBTS_A_CALL);
      this.send(some, callOf(this.surroundings.counter, some));
    }
  }

  /** Refused before it ran. Without votes that nobody waits for by now: they would overtake their own clean-up. */
  #teach(polls: readonly AnyPoll[]): void {
    const still = polls.filter(({ isVote, isOver }) => !(isVote && isOver));
    if (still.length > 0) this.#call('eval', QUORUM_SCRIPT, still, callOf(this.surroundings.counter, still));
  }

  /** Before anything else on a new connection: who is it, and since when? */
  async #introduce(): Promise<void> {
    const { context, counter, probation } = this.surroundings;
    this.#refusal = undefined;
    this.#votesFrom = probation === 0 ? 0 : Infinity;
    try {
      const info = await this.ask('info', 'server').catch((error: unknown) => {
        // Without the permission nothing is known of it; then it votes unless its age matters.
        if (!(error instanceof Error) || error.name !== 'ReplyError') throw error;
        this.#refusal = error;
        return '';
      });
      const text = String(info);
      this.runId = /^run_id:(\w+)/m.exec(text)?.[1];
      this.isDouble = this.runId !== undefined && this.surroundings.isTaken(this.runId, this);
      this.isClusterNode = /^redis_mode:cluster/m.test(text);
      if (this.isDouble || this.isClusterNode) {
        this.#refusal = new Error(
          this.isDouble ? 'It is the same server as another node.' : 'It is a node of a Redis Cluster.',
        );
        this.#onIntroduced?.();
        return;
      }
      // After that: a node of a Cluster would refuse it for a reason that says less.
      await this.ask('eval', QUORUM_SCRIPT, '1', counter);
      const uptime = /^uptime_in_seconds:(\d+)/m.exec(text)?.[1];
      if (probation > 0 && uptime !== undefined) {
        // The difference of two whole seconds: a server that has started 10 ms ago may say 1.
        const age = Math.max(0, Number(uptime) - 1) * 1_000;
        // Counted from the answer: the question may have waited at the server, which grew older meanwhile.
        const answeredAt = context.clock.now();
        this.#votesFrom = answeredAt + probation - age;
        if (!this.mayVote(answeredAt)) this.#refusal = new Error('It has started within the last maxLease.');
      }
    } catch (error) {
      // The connection is lost again, or the script is refused: then no operation will be answered either.
      this.#refusal = error;
      this.#onIntroduced?.();
      return;
    }
    this.#become(true);
    this.#onIntroduced?.();
  }

  #become(ready: boolean): void {
    if (this.#ready === ready) return;
    this.#ready = ready;
    if (ready) this.#settleDebts();
    else this.#downSince = this.surroundings.context.clock.now();
    this.surroundings.onChange();
  }
}

/** The arguments of a script call with these operations. */
export function callOf(counter: string, polls: readonly AnyPoll[]): string[] {
  const keys = [counter];
  const values: string[] = [];
  for (const { lock, args } of polls) {
    keys.push(lock);
    values.push(...args);
  }
  return [String(keys.length), ...keys, ...values];
}
