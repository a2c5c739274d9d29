import { createHash } from 'node:crypto';
import type { Clock } from '../../../api/clock.js';
import { nextTick } from '../../../core/toolkit/real-timers.js';
import { type CommandSender, NotSent } from './redis-connection.js';

/** The fields of one operation in a script call, besides its lock. */
export type OperationArguments = readonly [code: string, holder: string, ms: string];

/** One operation on one lock: a part of a script call. */
export interface Operation {
  readonly lock: string;
  /** The share of one script call that it takes, a whole number: a call is full at `CALL_CAPACITY`. */
  readonly weight: number;
  /** An ask that was added directly before this one. This one runs only if the lock is held by that, and is answered {@link NOT_RUN} otherwise. */
  readonly after?: Operation | undefined;
  /**
   * The fields to send at `now`; `undefined` if the operation has become pointless since it was added. Called when it is sent, also when it is
   * sent again to another server, and never while there is no connection.
   */
  encode(now: number): OperationArguments | undefined;
  /** The script's reply; `sentAt` is when the call was sent, on the monotonic clock. */
  onReply(reply: unknown, sentAt: number): void;
  /** No reply: whether the operation was executed is unknown, unless `error` is `NotSent`. */
  onFailure(error: unknown): void;
}

// Client and server work at the same time only when one call does not carry everything: of 8, 16, 32 and 64 operations a
// call, 16 was the best at 64 in flight (2.2 times the raw client; 64: 1.45).
//
// All weights are whole. When a request stored its first fraction, a second after it began to wait, V8 discarded the compiled code of all that
// reads requests.
const CALL_CAPACITY = 32_000;

/** The weight of an acquire or a release: 16 a call. */
export const HEAVY = CALL_CAPACITY / 16;
/** The weight of a renewal: 256 a call. 10 000 in one call stalled the server for 34 ms. */
export const LIGHT = CALL_CAPACITY / 256;
/** The weight of a repeated acquire: 1 000 a call, so that a process with 100 waiters sends one command a second. */
export const REPEATED = CALL_CAPACITY / 1_000;

/** The error of a strict server, such as Dragonfly: a script may only touch keys that its call declares. */
const UNDECLARED = /\bundeclared key/i;

/** The reply to an operation that is behind an ask that was not granted. */
export const NOT_RUN = 'n';

/** How many locks one call looks at, for operators: 0.4 ms of the server's time on a busy machine. */
export const LOOKS = 32;
/** The weight of one such look. */
export const LOOK = CALL_CAPACITY / LOOKS;

// How the script is told which operations are linked to the one before them.
const LINKED = '+';
const UNLINKED = '-';

/** A script as it is sent: by its hash, or with its text where the server does not know it. */
export interface Script {
  readonly text: string;
  readonly sha: string;
  /** The keys that a call touches and declares only to a strict server. */
  readonly undeclaredKeys?: ((counter: string, locks: readonly string[]) => readonly string[]) | undefined;
}

/** A script with the hash by which the server knows it once it has run it. */
export function scriptOf(text: string, undeclaredKeys?: Script['undeclaredKeys']): Script {
  return { text, sha: createHash('sha1').update(text).digest('hex'), undeclaredKeys };
}

/**
 * Cluster: the server refused a call before it ran, because another one has the keys. Resolves when the call may be sent again;
 * answers `undefined` when it may not, or not any more. `sentAt` is when it was sent first.
 */
export type Redirect = (error: Error, sentAt: number) => Promise<void> | undefined;

/** A call that a server has refused before it ran. */
interface Resent {
  readonly firstSentAt: number;
  readonly withText: boolean;
}

/**
 * Collects the operations of a tick on locks that share a counter, sends them in as few script calls as is useful, and delivers the
 * replies.
 *
 * Operations of one call run one after the other in the order in which they were added, with no operation of another client between
 * them. Calls run in the order in which they were sent. Operations that are linked are always sent in one call.
 */
export class Batcher {
  /** To the server that keeps these locks now. The router that owns this batcher sets it. */
  connection: CommandSender | undefined;
  /**
   * Whether calls declare all keys that the script touches, because the server has refused one that did not. For all others that would take
   * 6 to 10 % longer, and a Cluster would refuse to renew a lock while its slot migrates, because it has no queue.
   */
  #declaresAll = false;
  /** Operations that were added in this tick. */
  #added: Operation[] | undefined;

  constructor(
    private readonly process: string,
    private readonly counter: string,
    private readonly script: Script,
    private readonly clock: Clock,
    private readonly onNotice: (notice: string, sentAt: number) => void,
    private readonly redirect?: Redirect,
    /** How replies to several operations are delivered, where that may be in halves. */
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
    // After the promise jobs that are ready now: operations that they add travel in the same call.
    nextTick(this.#flush);
  }

  /** Adds one without a holder, and answers its reply. */
  run(lock: string, code: 'I' | 'F', weight: number): Promise<unknown> {
    return new Promise((onReply, onFailure) => {
      this.add({ lock, weight, encode: () => [code, '', '0'], onReply, onFailure });
    });
  }

  readonly #flush = (): void => {
    const operations = this.#added ?? [];
    this.#added = undefined;
    this.#send(operations);
  };

  /** Sends operations in as few calls as have room for them, without those that have become pointless. */
  #send(operations: readonly Operation[], resent?: Resent): void {
    const { connection } = this;
    if (!connection?.isUp) {
      const why = connection ? 'There is no connection to the server.' : 'No server is known to keep this lock.';
      this.#onFailure(operations, new NotSent(why, { cause: connection?.cause }), this.clock.now(), resent);
      return;
    }
    const script = resent?.withText ? this.script.text : this.script.sha;
    const [only] = operations;
    // Usually an operation is alone. Arrays that grow would cost it 0.7 kB.
    if (only !== undefined && operations.length === 1 && only.after === undefined) {
      const sentAt = this.clock.now();
      const encoded = only.encode(sentAt);
      if (encoded === undefined) return;
      const [code, holder, ms] = encoded;
      const args = [script, '2', this.counter, only.lock];
      if (this.#declaresAll) this.#declare(operations, args);
      args.push(this.process, code, holder, ms);
      this.#call(connection, operations, args, sentAt, resent);
      return;
    }
    for (let next = 0; next < operations.length;) {
      const sent: Operation[] = [];
      // Before all that is encoded: what was granted counts from here, and the ages in a call are of one moment.
      const sentAt = this.clock.now();
      const args = [script, '', this.counter];
      const values = [this.process];
      // One character for each operation.
      let links = '';
      for (let weight = 0; next < operations.length; next += 1) {
        const operation = operations[next] as Operation;
        const { after } = operation;
        if (after === undefined) {
          if (weight >= CALL_CAPACITY) break;
        } else if (after !== sent.at(-1)) {
          // That one has become pointless, or somebody has added another one between the two.
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
      if (this.#declaresAll) this.#declare(sent, args);
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
    // Of a strict server, the first calls in flight learn it together.
    const mayDeclareMore = !this.#declaresAll && this.script.undeclaredKeys !== undefined;
    const onFailure = (error: unknown) => {
      if (mayDeclareMore && isUndeclared(error)) this.#declareAll(operations, sentAt, resent);
      else this.#onFailure(operations, error, sentAt, resent);
    };
    connection.send(
      resent?.withText ? 'eval' : 'evalsha',
      args,
      (reply) => {
        // The server may have been demoted, and forget what it has just granted.
        if (this.connection === connection) this.#deliver(operations, reply, sentAt, mayDeclareMore);
        else onFailure(new Error('The lock was moved to another server meanwhile.'));
      },
      onFailure,
    );
  }

  #onFailure(operations: readonly Operation[], cause: unknown, sentAt: number, resent: Resent | undefined): void {
    let error = cause instanceof Error ? cause : new Error('unknown');
    // The call has reached a server before.
    if (resent && error instanceof NotSent) error = new Error(error.message, { cause: error });
    const firstSentAt = resent?.firstSentAt ?? sentAt;
    // Refused before it ran. Sent with its text, the server knows it from then on.
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

  /** The first command that touches such a key is refused, and it is the first of an ask: an operation that is refused has changed nothing. */
  #declareAll(operations: readonly Operation[], sentAt: number, resent?: Resent): void {
    this.#declaresAll = true;
    this.#send(operations, { firstSentAt: resent?.firstSentAt ?? sentAt, withText: resent?.withText ?? false });
  }

  #declare(operations: readonly Operation[], args: string[]): void {
    const locks = operations.map(({ lock }) => lock);
    args.push(...(this.script.undeclaredKeys?.(this.counter, locks) ?? []));
    args[1] = String(args.length - 2);
  }

  #deliver(operations: readonly Operation[], reply: unknown, sentAt: number, mayDeclareMore: boolean): void {
    if (!Array.isArray(reply)) {
      // A list is missing where one was due: then the outcome of each is unknown.
      for (const operation of operations) operation.onReply(operations.length === 1 ? reply : undefined, sentAt);
      return;
    }
    // Grants first: a request that is granted in this call is then never reported as waiting.
    for (let index = operations.length; index < reply.length; index += 1) this.onNotice(String(reply[index]), sentAt);
    // With nothing in flight the server is idle until the next call. So what follows the first half is sent before the second half is
    // delivered, and from then on client and server work at the same time. (4 to 16 callers: 1.3 to 1.4 times as many cycles.)
    // Not if a lock was handed on: all who wait here could have had it before the answer to its release was delivered, and a caller that
    // comes again at once would miss every second round.
    const { length } = operations;
    // Nor if a chain would be cut: its one caller would leave the asks that are not answered yet by another call.
    const middle = Math.ceil(length / 2);
    const isSplit =
      this.delivery === 'halves' &&
      this.connection?.isIdle === true &&
      reply.length === length &&
      operations[middle]?.after === undefined;
    const half = isSplit ? middle : length;
    this.#settle(operations, reply, sentAt, mayDeclareMore, 0, half);
    if (half === length) return;
    const rest = () => {
      this.#settle(operations, reply, sentAt, mayDeclareMore, half, length);
    };
    // Behind the flush, which is queued by then.
    nextTick(() => {
      nextTick(rest);
    });
  }

  /** Delivers the replies to the operations from one place in the call up to another. */
  #settle(
    operations: readonly Operation[],
    replies: readonly unknown[],
    sentAt: number,
    mayDeclareMore: boolean,
    from: number,
    to: number,
  ): void {
    const refused: Operation[] = [];
    for (let place = from; place < to; place += 1) {
      const operation = operations[place] as Operation;
      const answer = replies[place];
      if (mayDeclareMore && isUndeclared(answer)) refused.push(operation);
      else if (answer instanceof Error) operation.onFailure(answer);
      else operation.onReply(answer, sentAt);
    }
    if (refused.length > 0) this.#declareAll(refused, sentAt);
  }
}

/** Whether a strict server has refused a script. */
export function isUndeclared(error: unknown): boolean {
  return error instanceof Error && UNDECLARED.test(error.message);
}
