import type { BackendContext } from '../../api/lock-provider.js';
import { CommandConnection } from '../redis/client/command-connection.js';
import { isReplyError, type RedisConnection } from '../redis/client/redis-connection.js';
import { whyTooOldRedis } from '../redis/client/oldest-redis.js';
import { callOf, type Command, isRelease, isVote } from './command.js';
import type { RedlockKeyLayout } from './key-layout.js';
import { isAnswer, LOCK_SCRIPT } from './lock-script.js';
import { PendingReleases } from './pending-releases.js';
import { Probation } from './probation.js';
import type { RedlockSettings } from './redlock-options.js';
import { Votes } from './votes.js';

const RELEASES_A_CALL = 256;
const SAME_SERVER =
  'is the same server as another node, and a majority must be of independent servers. Give each node a server of its own.';
const CLUSTERED =
  'belongs to a Redis Cluster, and a majority must be of independent servers. For a Cluster use RedisLockProvider.';

/** One of the independent servers. */
export class RedlockNode {
  /** The server's own name for its current run; it changes with each start. */
  runId: string | undefined;
  /** Why it cannot be one of the nodes, so it is not asked: its failures are not independent of those of others, or it is too old. */
  unfitness: string | undefined;
  /** How many calls it has not answered yet. */
  unanswered = 0;
  readonly #connection: CommandConnection;
  readonly #probation: Probation | undefined;
  /** Releases that this node has not answered. */
  readonly #pending = new PendingReleases();
  /** The votes of a request that was sent here, as all were whose release is pending. */
  readonly #sentHere = new Votes();
  #isReady = false;
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
    const { clock, random, logger } = context;
    const { commandTimeout, maxLease, delayedRestart } = settings;
    this.#connection = new CommandConnection(
      connection,
      clock,
      random,
      logger,
      commandTimeout,
      {
        onUp: () => {
          this.#identified = this.#identify();
        },
        onDown: () => {
          this.#lost();
        },
      },
      'voter',
    );
    if (delayedRestart) this.#probation = new Probation(this.#connection, clock, maxLease, layout.run);
    this.#sentHere.asked(index);
  }

  /** Whether it can be asked. */
  get isReady(): boolean {
    return this.#isReady;
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

  ask(command: string, ...args: string[]): Promise<unknown> {
    return this.#connection.ask(command, ...args);
  }

  close(): Promise<void> {
    this.#probation?.stop();
    return this.#connection.close();
  }

  /** Whether its vote counts yet. Otherwise it is asked for everything else. */
  mayVote(now: number): boolean {
    return this.#probation?.isOver(now) ?? true;
  }

  /** Sends the commands in one call: {@link callOf} them, made once for all nodes. */
  send(commands: readonly Command[], call: string[]): void {
    if (!this.#isReady) {
      this.#fail(commands, this.cause);
      return;
    }
    for (const command of commands) if (isVote(command)) command.votes?.asked(this.index);
    this.#call('evalsha', commands, call);
  }

  #call(command: 'evalsha' | 'eval', commands: readonly Command[], call: string[]): void {
    this.unanswered += 1;
    this.#connection.send(
      command,
      call,
      (reply) => {
        this.unanswered -= 1;
        const replies: unknown[] = Array.isArray(reply) ? reply : [reply];
        commands.forEach((each, index) => {
          if (isAnswer(replies[index])) each.onReply?.(replies[index], this.index);
          else this.#fail([each], new Error('The node answered something that is not an answer of the lock script.'));
        });
      },
      (error) => {
        this.unanswered -= 1;
        if (command === 'evalsha' && error instanceof Error && error.message.startsWith('NOSCRIPT')) {
          this.#sendScript(commands);
        } else this.#fail(commands, error);
      },
    );
  }

  /**
   * The node does not have the script, so nothing was executed. Votes that no caller waits for any more are left out: they would overtake
   * their own clean-up.
   */
  #sendScript(commands: readonly Command[]): void {
    const still = commands.filter((command) => command.isOpen === true || !isVote(command));
    if (still.length > 0) this.#call('eval', still, callOf(this.layout.counter, still, LOCK_SCRIPT));
  }

  #fail(commands: readonly Command[], cause: unknown): void {
    for (const command of commands) {
      // Also while the node is down for longer than any lease: it may only be frozen, with votes that it has not read yet.
      if (isRelease(command) && command.votes?.isSentTo(this.index) === true) this.#pending.add(command);
      command.onFault?.(cause);
    }
  }

  #sendPending(): void {
    const pending = this.#pending.take();
    const votes = this.#sentHere;
    for (let first = 0; first < pending.length; first += RELEASES_A_CALL) {
      const some = pending.slice(first, first + RELEASES_A_CALL).map(({ lock, args }) => ({ lock, args, votes }));
      this.send(some, callOf(this.layout.counter, some));
    }
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
      await this.ask('eval', LOCK_SCRIPT, '1', this.layout.counter);
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
      return String(await this.ask('info', 'server'));
    } catch (error) {
      if (!isReplyError(error)) throw error;
      this.#refusal = error;
      return '';
    }
  }

  #lost(): void {
    this.runId = undefined;
    this.#probation?.stop();
    // From here on the connection gives the cause: its probation may be over for long.
    this.#refusal = undefined;
    this.#setReady(false);
  }

  #setReady(isReady: boolean): void {
    if (this.#isReady === isReady) return;
    this.#isReady = isReady;
    if (isReady) this.#sendPending();
    this.onChange();
  }
}
