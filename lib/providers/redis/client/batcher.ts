import { createHash } from 'node:crypto';
import type { Clock } from '../../../api/clock.js';
import { nextTick } from '../../../core/toolkit/real-timers.js';
import { type CommandSender, NotSent } from './redis-connection.js';

/** An operation's fields in a script call, apart from its lock. */
export type OperationArguments = readonly [code: string, holder: string, ms: string];

/** One operation on one lock. A script call carries several. */
export interface Operation {
  readonly lock: string;
  /** How much of a script call the operation takes up, as a whole number. A call is full at `CALL_CAPACITY`. */
  readonly weight: number;
  /**
   * An acquire that was added directly before this operation. If it's unsuccessful, this operation doesn't run and its
   * reply is {@link NOT_RUN}.
   */
  readonly after?: Operation | undefined;
  /**
   * The fields to send at `now`, or `undefined` if the operation is no longer needed. Called for each send, including a
   * resend to another server, but never without a connection.
   */
  encode(now: number): OperationArguments | undefined;
  /** Handles the script's reply to a call that was sent at `sentAt` (monotonic clock). */
  onReply(reply: unknown, sentAt: number): void;
  /** Handles a missing reply. Unless `error` is `NotSent`, the server may have executed the operation. */
  onFailure(error: unknown): void;
}

// Client and server work in parallel only if the pending operations are split across several calls. With 64 in flight,
// 16 per call was the fastest of 8, 16, 32, and 64 (2.2 times the raw client's speed; with 64 per call, 1.45 times).
//
// Weights are integers, because storing the first fraction in a request made V8 discard the optimized code of every
// function that reads requests.
const CALL_CAPACITY = 32_000;

/** The weight of an acquire or a release; 16 fit in a call. */
export const HEAVY = CALL_CAPACITY / 16;
/** The weight of a renewal; 256 fit in a call. 10,000 renewals in one call stalled the server for 34 ms. */
export const LIGHT = CALL_CAPACITY / 256;
/**
 * The weight of a poll by a queued request; 1,000 fit in a call, so a process with 100 waiters sends one command a
 * second.
 */
export const POLL = CALL_CAPACITY / 1_000;

/** The error from a strict server, such as Dragonfly, when a script touches a key that the call doesn't declare. */
const UNDECLARED = /\bundeclared key/i;

/** The reply to an operation linked to an unsuccessful acquire. */
export const NOT_RUN = 'n';

/** How many locks one call inspects for operators (0.4 ms of server time on a busy machine). */
export const INSPECTIONS_PER_CALL = 32;
/** An inspection's fields and weight. */
export const INSPECT: OperationArguments = ['I', '', '0'];
export const INSPECTION = CALL_CAPACITY / INSPECTIONS_PER_CALL;

// Markers that tell the script whether an operation is linked to the one before it.
const LINKED = '+';
const UNLINKED = '-';

/** A Lua script, sent as its hash, or as its full text if the server doesn't know the hash. */
export interface Script {
  readonly text: string;
  readonly sha: string;
  /** The keys that a call touches but declares only to a strict server. */
  readonly undeclaredKeys?: ((counter: string, locks: readonly string[]) => readonly string[]) | undefined;
}

/** Pairs a script with the SHA-1 under which the server caches it. */
export function scriptOf(text: string, undeclaredKeys?: Script['undeclaredKeys']): Script {
  return { text, sha: createHash('sha1').update(text).digest('hex'), undeclaredKeys };
}

/**
 * In a Cluster, handles the error for a call that didn't run because another server has the keys. The promise resolves
 * when the call may be resent; `undefined` means it must not be. `sentAt` is when the call was first sent.
 */
export type Redirect = (error: Error, sentAt: number) => Promise<void> | undefined;

/** A call that is resent because a server rejected it without running it. */
interface Resent {
  readonly firstSentAt: number;
  readonly withText: boolean;
}

/**
 * Collects one tick's operations on locks that share a counter, packs them into script calls, and delivers the replies.
 *
 * A call's operations run in the order they were added, with no other client's commands in between. Calls run in the
 * order they were sent. Linked operations always travel in the same call.
 */
export class Batcher {
  /** The connection to the server that currently has these locks. Set by the batcher's owner. */
  connection: CommandSender | undefined;
  /**
   * Whether calls declare every key that the script touches. Set once the server has rejected a call that didn't. This
   * isn't the default, because such calls take 6 to 10 % longer, and a Cluster would refuse to renew a lock in a
   * migrating slot if the lock has no queue.
   */
  #declaresAll = false;
  /** The operations added in this tick. */
  #added: Operation[] | undefined;

  constructor(
    private readonly process: string,
    private readonly counter: string,
    private readonly script: Script,
    private readonly clock: Clock,
    private readonly onNotice: (notice: string, sentAt: number) => void,
    private readonly redirect?: Redirect,
    /** Whether a call's replies may be delivered in two halves. */
    private readonly delivery: 'halves' | 'whole' = 'halves',
  ) {}

  get isReachable(): boolean {
    return this.connection?.isUp ?? false;
  }

  add(operation: Operation): void {
    if (this.#added !== undefined) {
      this.#added.push(operation);
      return;
    }
    this.#added = [operation];
    // Runs after the promise jobs that are already queued, so the operations they add travel in the same call.
    nextTick(this.#flush);
  }

  /** Runs an operation with these fields, and resolves to its reply. */
  run(lock: string, fields: OperationArguments, weight = HEAVY): Promise<unknown> {
    return new Promise((onReply, onFailure) => {
      this.add({ lock, weight, encode: () => fields, onReply, onFailure });
    });
  }

  readonly #flush = (): void => {
    const operations = this.#added ?? [];
    this.#added = undefined;
    this.#send(operations);
  };

  /** Packs the operations that are still needed into as few calls as possible, and sends them. */
  #send(operations: readonly Operation[], resent?: Resent): void {
    const { connection } = this;
    if (!connection?.isUp) {
      const why = connection ? 'There is no connection to the server.' : 'No known server stores this lock.';
      this.#onFailure(operations, new NotSent(why, { cause: connection?.cause }), this.clock.now(), resent);
      return;
    }
    const script = resent?.withText ? this.script.text : this.script.sha;
    const [only] = operations;
    // Most calls carry one operation. For these, the general path would allocate 0.7 kB as its arrays grow.
    if (only !== undefined && operations.length === 1 && only.after === undefined) {
      const sentAt = this.clock.now();
      const encoded = only.encode(sentAt);
      if (encoded === undefined) return;
      const [code, holder, ms] = encoded;
      const args = [script, '2', this.counter, only.lock, this.process, code, holder, ms];
      this.#call(connection, operations, args, sentAt, resent);
      return;
    }
    for (let next = 0; next < operations.length;) {
      const sent: Operation[] = [];
      // Read the clock before encoding: leases run from this time, and all ages in a call must be relative to it.
      const sentAt = this.clock.now();
      const args = [script, '', this.counter];
      const values = [this.process];
      // One character per operation.
      let links = '';
      for (let weight = 0; next < operations.length; next += 1) {
        const operation = operations[next] as Operation;
        const { after } = operation;
        if (after === undefined) {
          if (weight >= CALL_CAPACITY) break;
        } else if (after !== sent.at(-1)) {
          // The acquire it depends on was dropped, or another operation was added between the two.
          operation.onReply(NOT_RUN, sentAt);
          continue;
        }
        const encoded = operation.encode(sentAt);
        if (encoded === undefined) continue;
        weight += operation.weight;
        links += after === undefined ? UNLINKED : LINKED;
        sent.push(operation);
        args.push(operation.lock);
        values.push(encoded[0], encoded[1], encoded[2]);
      }
      if (sent.length === 0) return;
      args[1] = String(sent.length + 1);
      if (links.includes(LINKED)) values.push(links);
      for (const value of values) args.push(value);
      this.#call(connection, sent, args, sentAt, resent);
    }
  }

  #call(
    connection: CommandSender,
    operations: readonly Operation[],
    args: string[],
    sentAt: number,
    resent: Resent | undefined,
  ): void {
    // Read this now: several calls may be in flight when the first one discovers that the server is strict, and all
    // must be resent.
    const mayDeclareMore = !this.#declaresAll && this.script.undeclaredKeys !== undefined;
    if (this.#declaresAll) this.#declare(operations, args);
    const onFailure = (error: unknown) => {
      if (mayDeclareMore && isUndeclared(error)) this.#declareAll(operations, sentAt, resent);
      else this.#onFailure(operations, error, sentAt, resent);
    };
    connection.send(
      resent?.withText ? 'eval' : 'evalsha',
      args,
      (reply) => {
        // The server may have been demoted. If so, it loses the locks it has just granted.
        if (this.connection === connection) this.#deliver(operations, reply, sentAt, mayDeclareMore);
        else onFailure(new Error('The lock moved to another server before this one replied.'));
      },
      onFailure,
    );
  }

  #onFailure(operations: readonly Operation[], cause: unknown, sentAt: number, resent: Resent | undefined): void {
    let error = cause instanceof Error ? cause : new Error('unknown');
    // The first attempt reached a server.
    if (resent && error instanceof NotSent) error = new Error(error.message, { cause: error });
    const firstSentAt = resent?.firstSentAt ?? sentAt;
    // The script did not run. Sending its text once also makes the server cache it.
    if (!resent?.withText && error.message.startsWith('NOSCRIPT')) {
      this.#send(operations, { firstSentAt, withText: true });
      return;
    }
    const redirected = this.redirect?.(error, firstSentAt);
    if (redirected === undefined) for (const operation of operations) operation.onFailure(error);
    else {
      void redirected.then(() => {
        this.#send(operations, { firstSentAt, withText: false });
      });
    }
  }

  /**
   * Resends the operations with all keys declared. This is safe: the first command of an acquire already touches an
   * undeclared key, so a rejected operation has changed nothing.
   */
  #declareAll(operations: readonly Operation[], sentAt: number, resent?: Resent): void {
    this.#declaresAll = true;
    this.#send(operations, { firstSentAt: resent?.firstSentAt ?? sentAt, withText: resent?.withText ?? false });
  }

  #declare(operations: readonly Operation[], args: string[]): void {
    const locks = operations.map(({ lock }) => lock);
    const undeclared = this.script.undeclaredKeys?.(this.counter, locks) ?? [];
    const declared = 1 + locks.length;
    args[1] = String(declared + undeclared.length);
    args.splice(2 + declared, 0, ...undeclared);
  }

  #deliver(operations: readonly Operation[], reply: unknown, sentAt: number, mayDeclareMore: boolean): void {
    if (!Array.isArray(reply)) {
      // There were several operations but no list of replies, so each outcome is unknown.
      for (const operation of operations) operation.onReply(operations.length === 1 ? reply : undefined, sentAt);
      return;
    }
    // Notices come first, so a request that was granted in this call is never reported as waiting.
    for (let index = operations.length; index < reply.length; index += 1) this.onNotice(String(reply[index]), sentAt);
    // If nothing is in flight, the server idles until the next call. So we deliver half of the replies, send the
    // resulting operations, and only then deliver the rest; from then on, client and server work in parallel. (With 4
    // to 16 callers, this runs 1.3 to 1.4 times as many cycles.) We skip this after a handoff to a waiter in this
    // process: all waiters here could have had the lock before the release's reply was delivered, and a caller that
    // reacquires immediately would miss every other round.
    const { length } = operations;
    // Don't split a chain: its caller would have to cancel the unanswered acquires in another call.
    const middle = Math.ceil(length / 2);
    const isSplit =
      this.delivery === 'halves' &&
      this.connection?.unanswered === 0 &&
      reply.length === length &&
      operations[middle]?.after === undefined;
    const half = isSplit ? middle : length;
    this.#settle(operations, reply, sentAt, mayDeclareMore, 0, half);
    if (half === length) return;
    const rest = () => {
      this.#settle(operations, reply, sentAt, mayDeclareMore, half, length);
    };
    // Wait two ticks, so this runs after the flush that the first half queued.
    nextTick(() => {
      nextTick(rest);
    });
  }

  /** Delivers the replies with indexes `from` (inclusive) to `to` (exclusive). */
  #settle(
    operations: readonly Operation[],
    replies: readonly unknown[],
    sentAt: number,
    mayDeclareMore: boolean,
    from: number,
    to: number,
  ): void {
    const refused: Operation[] = [];
    for (let index = from; index < to; index += 1) {
      const operation = operations[index] as Operation;
      const reply = replies[index];
      if (mayDeclareMore && isUndeclared(reply)) refused.push(operation);
      else if (reply instanceof Error) operation.onFailure(reply);
      else operation.onReply(reply, sentAt);
    }
    if (refused.length > 0) this.#declareAll(refused, sentAt);
  }
}

/** Whether a strict server rejected a script. */
export function isUndeclared(error: unknown): boolean {
  return error instanceof Error && UNDECLARED.test(error.message);
}
