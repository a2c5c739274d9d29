import type { BackendContext } from '../../api/lock-provider.js';
import { Batcher, HEAVY, LIGHT, type OperationArguments } from '../redis/client/batcher.js';
import { CommandConnection, type ConnectionListener } from '../redis/client/command-connection.js';
import { isReplyError, NotSent, type RedisConnection } from '../redis/client/redis-connection.js';
import { whyTooOldRedis } from '../redis/client/server-diagnostics.js';
import type { RedlockKeyLayout } from './key-layout.js';
import { Code, holderOf, isAnswer, LOCK_SCRIPT, NO_MS, NO_ROUND, roundOf } from './lock-script.js';
import { Probation } from './probation.js';
import type { RedlockSettings } from './redlock-options.js';
import { Votes } from './votes.js';

const SAME_SERVER =
  'is the same server as another node, and a majority must be of independent servers. Give each node a server of its own.';
const CLUSTERED =
  'belongs to a Redis Cluster, and a majority must be of independent servers. For a Cluster use RedisLockProvider.';

/** One operation on one lock, on its way to the nodes. */
export interface RedlockCommand {
  readonly lock: string;
  readonly args: OperationArguments;
  /** The votes of the request that it is about. */
  readonly votes?: Votes | undefined;
  /** Whether a caller still waits for the outcome. Default true. A vote that no caller waits for is not sent. */
  readonly isOpen?: boolean;
  onReply?(reply: unknown, node: number): void;
  /** Called when there is no answer: the node is down, refuses, may not vote yet, or its connection was lost. */
  onFault?(cause: unknown): void;
}

/** One of the independent servers. */
export class RedlockNode implements ConnectionListener {
  /** The server's own name for its current run; it changes with each start. */
  runId: string | undefined;
  /** Why it cannot be one of the nodes, so it is not asked: its failures are not independent of those of others, or it is too old. */
  unfitness: string | undefined;
  readonly #connection: CommandConnection;
  /** Has the connection while the node can be asked. */
  readonly #batcher: Batcher;
  readonly #probation: Probation | undefined;
  /** Releases that this node has not answered. */
  readonly #pending = new PendingReleases();
  /** The votes of a request that was sent here, as all were whose release is pending. */
  readonly #sentHere = new Votes();
  #refusal: unknown;
  #identified = Promise.resolve();

  /** @param all the nodes, this one among them */
  constructor(
    private readonly context: BackendContext,
    private readonly settings: RedlockSettings,
    private readonly layout: RedlockKeyLayout,
    connection: RedisConnection,
    /** Its number among the nodes, from 0. */
    readonly index: number,
    private readonly all: readonly RedlockNode[],
    private readonly onChange: () => void,
  ) {
    const { clock } = context;
    const { commandTimeout, maxLease, delayedRestart } = settings;
    // Whole, because a waiter must know that it was refused when the request that was granted in the same call is released: that wakes it.
    this.#batcher = new Batcher('', layout.counter, LOCK_SCRIPT, clock, () => undefined, undefined, 'whole');
    this.#connection = new CommandConnection(connection, { ...context, commandTimeout, topology: 'voter' }, this);
    if (delayedRestart) this.#probation = new Probation(this.#connection, clock, maxLease, layout.run);
    this.#sentHere.requested(index, NO_ROUND);
  }

  onUp(): void {
    this.#identified = this.#identify();
  }

  onDown(): void {
    this.runId = undefined;
    this.#probation?.stop();
    // From here on the connection gives the cause: its probation may be over for long.
    this.#refusal = undefined;
    this.#setReady(false);
  }

  /** Whether it can be asked. */
  get isReady(): boolean {
    return this.#batcher.connection !== undefined;
  }

  /** How many calls it has not answered yet. */
  get unanswered(): number {
    return this.#connection.unanswered;
  }

  /** Why it does not answer or vote. */
  get cause(): unknown {
    return this.#refusal ?? this.#connection.cause;
  }

  /** Resolves when it is ready or has refused, and rejects when it cannot be reached; it then keeps trying by itself. */
  async connect(): Promise<void> {
    await this.#connection.connect();
    await this.#identified;
  }

  call(command: string, ...args: string[]): Promise<unknown> {
    return this.#connection.call(command, ...args);
  }

  close(): Promise<void> {
    this.#probation?.stop();
    return this.#connection.close();
  }

  /** Whether its vote counts yet. Otherwise it is asked for everything else. */
  mayVote(now: number): boolean {
    return this.#probation?.isOver(now) ?? true;
  }

  /**
   * Sends at the end of this tick, with all other commands of the tick in as few calls as is useful. A vote that no caller waits for any more
   * is left out, also where the node does not know the script and gets it with the next call: it would overtake its own clean-up.
   */
  send(command: RedlockCommand, weight = HEAVY): void {
    const { lock, args, votes } = command;
    const votesHere = isVote(command);
    if (votesHere && !this.mayVote(this.context.clock.now())) {
      command.onFault?.(this.cause);
      return;
    }
    const fail = (cause: unknown) => {
      // Also while the node is down for longer than any lease: it may only be frozen, with votes that it has not read yet.
      if (isRelease(command) && votes?.isSentTo(this.index) === true) this.#pending.add(command);
      command.onFault?.(cause);
    };
    this.#batcher.add({
      lock,
      weight,
      encode: () => {
        if (!votesHere) return args;
        if (command.isOpen === false || votes?.isReleased === true) return undefined;
        votes?.requested(this.index, roundOf(args));
        return args;
      },
      onReply: (reply) => {
        if (isAnswer(reply)) command.onReply?.(reply, this.index);
        else fail(new Error('The node answered something that is not an answer of the lock script.'));
      },
      onFailure: (error) => {
        fail(error instanceof NotSent ? this.cause : error);
      },
    });
  }

  /** Before anything else on a new connection: which server is it, and may it vote? */
  async #identify(): Promise<void> {
    this.#refusal = undefined;
    try {
      const info = await this.#info();
      this.runId = /^run_id:(\w+)/m.exec(info)?.[1];
      this.unfitness = this.#unfitnessIn(info);
      if (this.unfitness !== undefined) {
        this.#refusal = new Error(`The node ${this.unfitness}`);
        return;
      }
      // After that: a node of a Cluster would refuse the script for a reason that explains less.
      await this.call('eval', LOCK_SCRIPT.text, '1', this.layout.counter);
      await this.#probation?.begin(this.runId);
    } catch (error) {
      // The connection is lost again, or the script is refused: then no command will be answered either.
      this.#refusal = error;
      return;
    }
    if (this.runId !== undefined && !this.mayVote(this.context.clock.now())) {
      this.#refusal = new Error('It does not vote yet: its current run was first seen less than maxLease ago.');
    }
    this.#setReady(true);
  }

  #unfitnessIn(info: string): string | undefined {
    const isDouble =
      this.runId !== undefined && this.all.some(({ runId, index }) => runId === this.runId && index !== this.index);
    if (isDouble) return SAME_SERVER;
    // A node of a Cluster refuses the keys of other nodes, and fails over.
    if (/^(redis|server)_mode:cluster/m.test(info)) return CLUSTERED;
    const reason = whyTooOldRedis(info);
    return reason && `cannot be used: ${reason}`;
  }

  /** Without the permission nothing is known of the server. Then it votes, except with `delayedRestart`. */
  async #info(): Promise<string> {
    try {
      return String(await this.call('info', 'server'));
    } catch (error) {
      if (!isReplyError(error)) throw error;
      this.#refusal = error;
      return '';
    }
  }

  #setReady(isReady: boolean): void {
    if (this.isReady === isReady) return;
    this.#batcher.connection = isReady ? this.#connection : undefined;
    if (isReady) for (const release of this.#pending.take()) this.send({ ...release, votes: this.#sentHere }, LIGHT);
    this.onChange();
  }
}

/**
 * How many releases are remembered for one node at most. A node that went down can have as many votes as locks were held or asked for then.
 * Beyond this bound the oldest are forgotten, and their votes end with their leases.
 */
const MAX_PENDING = 10_000;

/** The releases that one node has not answered, at most one for each request: the votes that they end would block their keys for a lease. */
export class PendingReleases {
  readonly #byHolder = new Map<string, RedlockCommand>();

  get size(): number {
    return this.#byHolder.size;
  }

  /**
   * Of several releases of one request, the one that ends all votes is kept, and not the one that has failed last: what is not sent for want
   * of a connection fails immediately, and what was lost with the connection fails when the library has closed its socket.
   */
  add({ lock, args }: RedlockCommand): void {
    const holder = holderOf(args);
    const known = this.#byHolder.get(holder);
    if (known !== undefined && endsVotesOf(known.args, args)) return;
    this.#byHolder.set(holder, { lock, args });
    if (this.#byHolder.size <= MAX_PENDING) return;
    for (const oldest of this.#byHolder.keys()) {
      this.#byHolder.delete(oldest);
      return;
    }
  }

  /** Removes all of them and returns them, to be sent again. */
  take(): RedlockCommand[] {
    const all = [...this.#byHolder.values()];
    this.#byHolder.clear();
    return all;
  }
}

/** Whether a release ends all votes that another one ends: the votes of all rounds, or for a clean-up those of its round and the rounds before. */
function endsVotesOf([code, vote]: OperationArguments, [otherCode, otherVote]: OperationArguments): boolean {
  return code === Code.release || (otherCode === Code.cleanUp && vote >= otherVote);
}

/** Whether it makes a node vote. */
function isVote({ args: [code] }: RedlockCommand): boolean {
  return code === Code.vote || code === Code.restoreVote;
}

/** Whether it ends votes for good: a key that is to be retained stays locked by its vote instead where a node does not answer. */
function isRelease({ args: [code, , ms] }: RedlockCommand): boolean {
  return code === Code.cleanUp || (code === Code.release && ms === NO_MS);
}
