import type { Timer } from '../../api/clock.js';
import type { BackendContext } from '../../api/lock-provider.js';
import { Batcher, HEAVY, LIGHT, type OperationArguments } from '../redis/client/batcher.js';
import { CommandConnection, type ConnectionListener } from '../redis/client/command-connection.js';
import { isReplyError, NotSent, type RedisConnection } from '../redis/client/redis-connection.js';
import { whyTooOldRedis } from '../redis/client/server-diagnostics.js';
import type { RedlockKeyLayout } from './key-layout.js';
import { Code, holderOf, isAnswer, LOCK_SCRIPT, NO_MS, roundOf } from './lock-script.js';
import { Probation } from './probation.js';
import type { RedlockSettings } from './redlock-options.js';
import type { Votes } from './votes.js';

const SAME_SERVER =
  'is the same server as another node, but Redlock needs independent servers. Use a separate server for each node.';
const CLUSTERED =
  'belongs to a Redis Cluster, but Redlock needs independent servers. For a Cluster, use RedisLockProvider.';

/** How long to wait before a node that has refused the script is identified again, in ms. */
const RETRY_DELAY = 1_000;

/** An operation on one lock, sent to the nodes. */
export interface RedlockCommand {
  readonly lock: string;
  readonly args: OperationArguments;
  /** The votes of the operation's request. */
  readonly votes?: Votes | undefined;
  /** Whether a caller is still waiting for the outcome. Default true. If false, no vote is requested. */
  readonly isOpen?: boolean;
  onReply?(reply: unknown, node: number): void;
  /** Called instead of `onReply` if the node is down, refuses, may not vote yet, or loses its connection. */
  onFault?(cause: unknown): void;
}

/** A node: one of the independent servers that vote. */
export class RedlockNode implements ConnectionListener {
  /** The server's run id, which changes every time it starts. */
  runId: string | undefined;
  /**
   * Why the server cannot be a node: it doesn't fail independently of the others, or it is too old. Nothing is sent to
   * such a server.
   */
  unfitness: string | undefined;
  readonly #connection: CommandConnection;
  /** Has a connection only while the node is ready. */
  readonly #batcher: Batcher;
  readonly #probation: Probation | undefined;
  /** Releases that failed on this node and are resent once it's back. */
  readonly #pending = new PendingReleases();
  #refusal: unknown;
  #retry: Timer | undefined;
  #identified = Promise.resolve();

  /** @param all every node, including this one */
  constructor(
    private readonly context: BackendContext,
    private readonly settings: RedlockSettings,
    private readonly layout: RedlockKeyLayout,
    connection: RedisConnection,
    /** This node's index, starting at 0. */
    readonly index: number,
    private readonly all: readonly RedlockNode[],
    private readonly onChange: () => void,
  ) {
    const { clock } = context;
    const { commandTimeout, maxLease, delayedRestart } = settings;
    // 'whole', because a release wakes this process's waiters: a request that got "busy" in the same call as the grant
    // must be waiting by then.
    this.#batcher = new Batcher('', layout.counter, LOCK_SCRIPT, clock, () => undefined, undefined, 'whole');
    this.#connection = new CommandConnection(connection, { ...context, commandTimeout, topology: 'voter' }, this);
    if (delayedRestart) this.#probation = new Probation(this.#connection, clock, maxLease, layout.run);
  }

  onUp(): void {
    this.#identified = this.#identify();
  }

  onDown(): void {
    this.#endRetry();
    this.runId = undefined;
    this.#probation?.stop();
    // From here on, the connection's error is the cause. An earlier reason for refusal, such as a probation, may be
    // long gone.
    this.#refusal = undefined;
    this.#setReady(false);
  }

  /** Whether the node accepts operations. */
  get isReady(): boolean {
    return this.#batcher.connection !== undefined;
  }

  /** How many calls haven't received a reply yet. */
  get unanswered(): number {
    return this.#connection.unanswered;
  }

  /** Why the node doesn't reply or vote. */
  get cause(): unknown {
    return this.#refusal ?? this.#connection.cause;
  }

  /**
   * Resolves when the node is ready or has refused. Rejects if it's unreachable, but keeps trying to reconnect in the
   * background.
   */
  async connect(): Promise<void> {
    await this.#connection.connect();
    await this.#identified;
  }

  call(command: string, ...args: string[]): Promise<unknown> {
    return this.#connection.call(command, ...args);
  }

  async close(): Promise<void> {
    this.#probation?.stop();
    await this.#connection.close();
    this.#endRetry();
  }

  /** Whether the node may vote. During its probation, it still runs all other operations. */
  mayVote(now: number): boolean {
    return this.#probation?.isOver(now) ?? true;
  }

  /**
   * Sends the command at the end of this tick, batched with the tick's other commands. A vote request that no caller is
   * waiting for anymore is dropped, even when a call is repeated because the node didn't know the script: by then, the
   * vote's cleanup may have been sent.
   */
  send(command: RedlockCommand, weight = HEAVY): void {
    const { lock, args, votes } = command;
    const votesHere = isVote(command);
    if (votesHere && !this.mayVote(this.context.clock.now())) {
      command.onFault?.(this.cause);
      return;
    }
    const fail = (cause: unknown) => {
      // Keep it even if the node is down longer than any lease: the node may just be frozen, with vote requests unread.
      // A pending one has no votes.
      if (isRelease(command) && votes?.isSentTo(this.index) !== false) this.#pending.add(command);
      command.onFault?.(cause);
    };
    this.#batcher.add({
      lock,
      weight,
      encode: () => {
        if (!votesHere) return args;
        // The release wouldn't end a vote requested after it.
        if (command.isOpen === false || votes?.isReleased === true) return undefined;
        votes?.requested(this.index, roundOf(args));
        return args;
      },
      onReply: (reply) => {
        if (isAnswer(reply)) command.onReply?.(reply, this.index);
        else fail(new Error('The reply from the lock script is invalid.'));
      },
      onFailure: (error) => {
        fail(error instanceof NotSent ? this.cause : error);
      },
    });
  }

  /**
   * Finds out which server the connection leads to, and whether it may vote, before anything else is sent. An earlier
   * refusal remains the cause until the outcome is known.
   */
  async #identify(): Promise<void> {
    let denial: unknown;
    try {
      // If the ACL denies INFO, the node votes, unless `delayedRestart` is set.
      const info = await this.call('info', 'server').then(String, (error: unknown) => {
        if (!isReplyError(error)) throw error;
        denial = error;
        return '';
      });
      this.runId = /^run_id:(\w+)/m.exec(info)?.[1];
      this.unfitness = this.#unfitnessIn(info);
      if (this.unfitness !== undefined) {
        this.#refusal = new Error(`The node ${this.unfitness}`);
        return;
      }
      // Runs after the check above, because a Cluster node would reject the script with a less helpful error.
      await this.call('eval', LOCK_SCRIPT.text, '1', this.layout.counter);
      await this.#probation?.begin(this.runId);
    } catch (error) {
      // If the connection was lost again, its own error is the cause.
      if (!isReplyError(error)) return;
      // The server refuses the script: it may be loading its data.
      this.#refusal = error;
      this.#identifyLater();
      return;
    }
    this.#refusal = denial;
    if (this.runId !== undefined && !this.mayVote(this.context.clock.now())) {
      this.#refusal = new Error('The node cannot vote yet: its current run was first seen less than maxLease ago.');
    }
    this.#setReady(true);
  }

  #identifyLater(): void {
    this.#retry = this.context.clock.setTimer(() => {
      this.onUp();
    }, RETRY_DELAY);
  }

  #endRetry(): void {
    if (this.#retry !== undefined) this.context.clock.clearTimer(this.#retry);
    this.#retry = undefined;
  }

  #unfitnessIn(info: string): string | undefined {
    const isDouble =
      this.runId !== undefined && this.all.some(({ runId, index }) => runId === this.runId && index !== this.index);
    if (isDouble) return SAME_SERVER;
    // A Cluster node rejects other nodes' keys and may fail over.
    if (/^(redis|server)_mode:cluster/m.test(info)) return CLUSTERED;
    const reason = whyTooOldRedis(info);
    return reason && `cannot be used: ${reason}`;
  }

  #setReady(isReady: boolean): void {
    if (this.isReady === isReady) return;
    this.#batcher.connection = isReady ? this.#connection : undefined;
    if (isReady) for (const release of this.#pending.take()) this.send(release, LIGHT);
    this.onChange();
  }
}

/**
 * The maximum number of pending releases per node. A node that went down may have cast a vote for every lock held or
 * requested at that time. Beyond this limit, the oldest releases are dropped, and their votes end with their leases.
 */
const MAX_PENDING = 10_000;

/**
 * One node's failed releases, at most one per request. If they weren't resent, their votes would block the keys for a
 * lease.
 */
export class PendingReleases {
  readonly #byHolder = new Map<string, RedlockCommand>();

  get size(): number {
    return this.#byHolder.size;
  }

  /**
   * If a request has several releases, keeps the one that ends the most votes, not the one that failed last. They may
   * fail out of order: without a connection, a release fails immediately, but one in flight fails only after the
   * library closes its socket.
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

  /** Removes and returns all releases, to be resent. */
  take(): RedlockCommand[] {
    const all = [...this.#byHolder.values()];
    this.#byHolder.clear();
    return all;
  }
}

/**
 * Whether the first release also ends every vote that the second one would end. A cleanup ends only the votes of its
 * own round and earlier ones.
 */
function endsVotesOf([code, vote]: OperationArguments, [otherCode, otherVote]: OperationArguments): boolean {
  return code === Code.release || (otherCode === Code.cleanUp && vote >= otherVote);
}

/** Whether the command requests a vote. */
function isVote({ args: [code] }: RedlockCommand): boolean {
  return code === Code.vote || code === Code.restoreVote;
}

/**
 * Whether the command only ends votes. A failed release that retains its key (`minHold`) is not resent: the node's vote
 * keeps the key locked.
 */
function isRelease({ args: [code, , ms] }: RedlockCommand): boolean {
  return code === Code.cleanUp || (code === Code.release && ms === NO_MS);
}
