import type { ProviderContext } from '../../api/lock-provider.js';
import type { Timer } from '../../api/clock.js';
import { CommandConnection } from '../redis/command-connection.js';
import type { RedisConnection } from '../redis/redis-client.js';
import { PendingReleases } from './pending-releases.js';
import type { Poll } from './poll.js';
import { Errand } from './questions.js';
import { QUORUM_SCRIPT, QUORUM_SCRIPT_SHA } from './quorum-script.js';
import { Votes } from './votes.js';

type AnyPoll = Poll<unknown>;

const RELEASES_A_CALL = 256;
// With a longer delay a timer of Node fires immediately.
const LONGEST_TIMER = 2 ** 31 - 1;

/** What a node has to know of the others. */
export interface NodeSurroundings {
  readonly context: ProviderContext;
  readonly counter: string;
  /** How long the node may be silent while commands are out before its connection is made anew, in ms. */
  readonly patience: number;
  /** No vote stands for longer, in ms. */
  readonly maxLease: number;
  /** With `delayedRestart`, the key of the run that has lasted for `maxLease`: before that, a node does not vote. */
  readonly runKey: string | undefined;
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
  /** Releases that this node has not answered. */
  readonly #pending = new PendingReleases();
  #ready = false;
  #votesFrom = Infinity;
  /** The run of the server that we have seen last, and since when, on our clock. */
  #seen: { readonly runId: string; readonly since: number } | undefined;
  #timer: Timer | undefined;
  #refusal: unknown;
  #onIntroduced: (() => void) | undefined;
  #downSince: number;

  constructor(
    connection: RedisConnection,
    /** Its number among the nodes, from 0. */
    readonly seat: number,
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
        this.#endCount();
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

  /** How many releases it has not answered. */
  get pendingReleases(): number {
    return this.#pending.size;
  }

  close(): Promise<void> {
    this.#endCount();
    return this.#connection.close();
  }

  /** Sends the operations in one call. `args` are theirs, made once for all nodes. */
  send(polls: readonly AnyPoll[], args: readonly string[]): void {
    if (!this.#ready) {
      const cause = this.cause;
      this.#fail(polls, cause);
      return;
    }
    for (const { isVote, votes } of polls) if (isVote) votes?.asked(this.seat);
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
            poll.onReply(reply[index], this.seat);
          });
        } else polls[0]?.onReply(reply, this.seat);
      },
      (error) => {
        if (command === 'evalsha' && error instanceof Error && error.message.startsWith('NOSCRIPT')) {
          this.#teach(polls);
        } else this.#fail(polls, error);
      },
    );
  }

  #fail(polls: readonly AnyPoll[], cause: unknown): void {
    this.#forgetEnded();
    for (const poll of polls) {
      const [code, , ms] = poll.args;
      // A key that is to be retained stays locked by its vote instead.
      const isRelease = code === 'C' || (code === 'R' && ms === '0');
      if (isRelease && !this.#hasEnded && poll.votes?.mayStandAt(this.seat) === true) this.#pending.add(poll);
      poll.onFault(cause);
    }
  }

  /** No vote of ours stands there any more: the node has been down for longer than any lease. */
  get #hasEnded(): boolean {
    const { context, maxLease } = this.surroundings;
    return !this.#ready && context.clock.now() - this.#downSince >= maxLease;
  }

  #forgetEnded(): void {
    if (this.#hasEnded) this.#pending.clear();
  }

  #sendPending(): void {
    const { context, counter, patience } = this.surroundings;
    const pending = this.#pending.take();
    const terms = { seats: 1, clock: context.clock, patience };
    for (let first = 0; first < pending.length; first += RELEASES_A_CALL) {
      const some = pending.slice(first, first + RELEASES_A_CALL).map(({ lock, args }) => {
        const votes = new Votes();
        votes.asked(this.seat);
        return new Errand(lock, args, terms, votes);
      });
      this.send(some, callOf(counter, some));
    }
  }

  /** Refused before it ran. Without votes that nobody waits for by now: they would overtake their own clean-up. */
  #teach(polls: readonly AnyPoll[]): void {
    const still = polls.filter(({ isVote, isOver }) => !(isVote && isOver));
    if (still.length > 0) this.#call('eval', QUORUM_SCRIPT, still, callOf(this.surroundings.counter, still));
  }

  /** Before anything else on a new connection: which server is it, and may it vote? */
  async #introduce(): Promise<void> {
    const { counter, runKey } = this.surroundings;
    this.#refusal = undefined;
    this.#votesFrom = runKey === undefined ? 0 : Infinity;
    try {
      // Without the permission nothing is known of it. Then it votes, except with delayedRestart.
      const text = await this.#read('info', 'server');
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
      if (runKey !== undefined && this.runId !== undefined) await this.#count(runKey, this.runId);
    } catch (error) {
      // The connection is lost again, or the script is refused: then no operation will be answered either.
      this.#refusal = error;
      this.#onIntroduced?.();
      return;
    }
    this.#become(true);
    this.#onIntroduced?.();
  }

  /**
   * The node may have forgotten a vote that it gave before it started. Such a vote is over when somebody has seen this run of the server
   * for `maxLease`. The time is counted here, on a monotonic clock: the server's own uptime follows its wall clock, which jumps when it is
   * corrected after the boot. At the end this process notes the run on the node, so that processes that come later need not count again.
   */
  async #count(runKey: string, runId: string): Promise<void> {
    const { context, maxLease } = this.surroundings;
    const { clock } = context;
    if (this.#seen?.runId !== runId) this.#seen = { runId, since: clock.now() };
    const [notedRun, notedFor] = (await this.#read('get', runKey)).split(' ');
    // What was counted for a shorter maxLease is too short.
    const isNoted = notedRun === runId && Number(notedFor) >= maxLease;
    this.#votesFrom = isNoted ? 0 : this.#seen.since + maxLease;
    if (isNoted) return;
    if (!this.mayVote(clock.now())) {
      this.#refusal = new Error('It does not vote yet: its current run was first seen less than maxLease ago.');
    }
    this.#noteLater(runKey, `${runId} ${maxLease}`);
  }

  #noteLater(runKey: string, note: string): void {
    const { clock } = this.surroundings.context;
    const left = this.#votesFrom - clock.now();
    if (left <= 0) {
      // It votes also where this fails. Others then count by themselves.
      this.ask('set', runKey, note).catch(() => undefined);
      return;
    }
    this.#timer = clock.setTimer(
      () => {
        this.#timer = undefined;
        this.#noteLater(runKey, note);
      },
      Math.min(Math.ceil(left), LONGEST_TIMER),
    );
  }

  /** The answer, or nothing where the ACL refuses the command. */
  async #read(command: string, ...args: string[]): Promise<string> {
    try {
      return String(await this.ask(command, ...args));
    } catch (error) {
      if (!(error instanceof Error) || error.name !== 'ReplyError') throw error;
      this.#refusal = error;
      return '';
    }
  }

  #endCount(): void {
    if (this.#timer !== undefined) this.surroundings.context.clock.clearTimer(this.#timer);
    this.#timer = undefined;
  }

  #become(ready: boolean): void {
    if (this.#ready === ready) return;
    // Before it is ready: whether it was down for longer than a lease.
    this.#forgetEnded();
    this.#ready = ready;
    if (ready) this.#sendPending();
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
