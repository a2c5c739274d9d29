import { nextTick } from 'node:process';
import type { Clock } from '../../api/clock.js';
import { type CommandConnection, NotSent } from './command-connection.js';
import type { Script } from './lua/lock-script.js';
import type { Operation } from './operation.js';

// Client and server work at the same time only when one call does not carry everything: of 8, 16, 32 and 64 operations a
// call, 16 was the best at 64 in flight (2.2 times the raw client; 64: 1.45).
const CALL = 256;

/** The weight of an acquire or a release: 16 a call. */
export const HEAVY = CALL / 16;
/** The weight of a renewal: 256 a call. 10 000 in one call stalled the server for 34 ms. */
export const LIGHT = 1;
/** The weight of a repeated ask: 1 000 a call, so that a process with 100 waiters sends one command a second. */
export const REPEATED = CALL / 1_000;

/** Where calls go. */
export interface Destination extends Pick<CommandConnection, 'send'> {
  /**
   * Cluster: the server refused a call before it ran, because another one has the keys. Resolves when it may be sent again; answers
   * nothing when it may not, or for too long. `sentAt` is when it was sent first.
   */
  readonly redirect?: (error: Error, sentAt: number) => Promise<void> | undefined;
}

/**
 * Sends what is pending at the end of a tick in as few script calls as is useful.
 *
 * Operations of one call run one after the other without anybody else's in between; calls run in the order in which they were sent.
 */
export class Dispatcher {
  #first: Operation[] = [];
  #asks: Operation[] = [];
  #scheduled = false;

  constructor(
    private readonly caller: string,
    private readonly counter: string,
    private readonly script: Script,
    private readonly clock: Clock,
    private readonly destination: Destination,
    private readonly onNotice: (notice: string, sentAt: number) => void,
  ) {}

  add(operation: Operation): void {
    (operation.isAsk ? this.#asks : this.#first).push(operation);
    if (this.#scheduled) return;
    this.#scheduled = true;
    // After the promise jobs that are ready now: what they ask for travels in the same call.
    nextTick(this.#flush);
  }

  readonly #flush = (): void => {
    const operations = this.#asks.length === 0 ? this.#first : this.#first.concat(this.#asks);
    this.#scheduled = false;
    this.#first = [];
    this.#asks = [];
    let call = new Call(this.counter, this.caller);
    for (const operation of operations) {
      if (call.weight >= CALL) {
        this.#run(call);
        call = new Call(this.counter, this.caller);
      }
      call.take(operation);
    }
    if (call.operations.length > 0) this.#run(call);
  };

  #run(call: Call, firstSentAt?: number): void {
    const sentAt = this.clock.now();
    this.#send(call, 'evalsha', this.script.sha, sentAt, (error) => {
      const reason = reasonOf(error, firstSentAt !== undefined);
      const since = firstSentAt ?? sentAt;
      // Refused before it ran. Sent with its text, the server knows it from then on.
      if (reason.message.startsWith('NOSCRIPT')) this.#runText(call, since);
      else this.#redirect(call, reason, since);
    });
  }

  #runText(refused: Call, firstSentAt: number): void {
    const call = this.#again(refused);
    if (call === undefined) return;
    this.#send(call, 'eval', this.script.text, this.clock.now(), (error) => {
      this.#redirect(call, reasonOf(error, true), firstSentAt);
    });
  }

  #redirect(refused: Call, error: Error, firstSentAt: number): void {
    const whenKnown = this.destination.redirect?.(error, firstSentAt);
    if (whenKnown === undefined) {
      for (const operation of refused.operations) operation.onFailure(error);
      return;
    }
    void whenKnown.then(() => {
      const call = this.#again(refused);
      if (call) this.#run(call, firstSentAt);
    });
  }

  /** What was refused, without those whose attempts are over by now. */
  #again(refused: Call): Call | undefined {
    const call = new Call(this.counter, this.caller);
    for (const operation of refused.operations) call.take(operation);
    return call.operations.length > 0 ? call : undefined;
  }

  #send(call: Call, command: string, script: string, sentAt: number, onFailure: (error: unknown) => void): void {
    this.destination.send(
      command,
      [script, ...call.args()],
      (reply) => {
        this.#deliver(call, reply, sentAt);
      },
      onFailure,
    );
  }

  #deliver({ operations }: Call, reply: unknown, sentAt: number): void {
    if (!Array.isArray(reply)) {
      operations[0]?.onReply(reply, sentAt);
      return;
    }
    // Grants first: an ask that was granted at once is then never reported as waiting.
    for (let index = operations.length; index < reply.length; index += 1) this.onNotice(String(reply[index]), sentAt);
    operations.forEach((operation, index) => {
      const answer: unknown = reply[index];
      if (answer instanceof Error) operation.onFailure(answer);
      else operation.onReply(answer, sentAt);
    });
  }
}

/** @param wasSent whether the call has reached a server before, and was refused there */
function reasonOf(error: unknown, wasSent: boolean): Error {
  if (wasSent && error instanceof NotSent) return new Error(error.message, { cause: error });
  return error instanceof Error ? error : new Error('unknown');
}

/** The operations of one script call, and its arguments. */
class Call {
  readonly operations: Operation[] = [];
  weight = 0;
  readonly #keys: string[];
  readonly #values: string[];

  constructor(counter: string, caller: string) {
    this.#keys = [counter];
    this.#values = [caller];
  }

  take(operation: Operation): void {
    const values = operation.encode();
    if (values === undefined) return;
    this.operations.push(operation);
    this.weight += operation.weight;
    this.#keys.push(operation.lock);
    this.#values.push(values[0], values[1], values[2]);
  }

  args(): string[] {
    return [String(this.#keys.length), ...this.#keys, ...this.#values];
  }
}
