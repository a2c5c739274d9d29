import type { CommandSender } from './client/redis-connection.js';

interface Sending {
  readonly command: string;
  readonly args: string[];
  readonly onReply: (reply: unknown) => void;
  readonly onFailure: (error: unknown) => void;
}

/** Too few replicas have acknowledged a write in time, or it is not known how many. */
export class NotReplicated extends Error {
  override readonly name = 'NotReplicated';
}

/**
 * Sends commands that are answered only when `replicas` replicas have acknowledged what they wrote.
 *
 * `WAIT` covers the last write of its own connection, and blocks that connection. So it needs a connection of its own, and one `WAIT` is
 * in flight at a time for all commands that were sent before it. Commands that come meanwhile go with the next one.
 */
export class WaitConnection implements CommandSender {
  #next: Sending[] = [];
  #isWaiting = false;
  #limit: number;

  constructor(
    private readonly connection: CommandSender,
    private readonly replicas: number,
    private readonly timeout: number,
  ) {
    this.#limit = timeout;
  }

  get isUp(): boolean {
    return this.connection.isUp;
  }

  get cause(): unknown {
    return this.connection.cause;
  }

  get isIdle(): boolean {
    return this.connection.isIdle;
  }

  /** The next `WAIT` leaves most of a lease of `lease` ms to the task. */
  limit(lease: number): void {
    this.#limit = Math.min(this.#limit, lease / 4);
  }

  send(command: string, args: string[], onReply: Sending['onReply'], onFailure: Sending['onFailure']): void {
    this.#next.push({ command, args, onReply, onFailure });
    if (!this.#isWaiting) this.#flush();
  }

  #flush(): void {
    // Half the timeout: a server that is silent for longer counts as dead, and WAIT is silent.
    const limit = Math.max(1, Math.floor(Math.min(this.#limit, this.timeout / 2)));
    this.#limit = this.timeout;
    this.#isWaiting = true;
    const answered: { readonly sending: Sending; readonly reply: unknown }[] = [];
    for (const sending of this.#next.splice(0)) {
      this.connection.send(
        sending.command,
        sending.args,
        (reply) => answered.push({ sending, reply }),
        // The server's refusal is passed on as it is; nothing was written.
        sending.onFailure,
      );
    }
    const fail = (error: NotReplicated) => {
      for (const { sending, reply } of answered) {
        // Written or not, a hold may not be counted on. That there is none is true without any replica.
        if (Array.isArray(reply)) sending.onReply(reply.map((each: unknown) => (isHold(each) ? error : each)));
        else if (isHold(reply)) sending.onFailure(error);
        else sending.onReply(reply);
      }
    };
    this.connection.send(
      'wait',
      [String(this.replicas), String(limit)],
      (count) => {
        if (Number(count) >= this.replicas) for (const { sending, reply } of answered) sending.onReply(reply);
        else fail(new NotReplicated(`${Number(count)} of ${this.replicas} replicas have acknowledged it.`));
        this.#done();
      },
      (cause) => {
        fail(new NotReplicated('It is not known whether the replicas have it.', { cause }));
        this.#done();
      },
    );
  }

  #done(): void {
    this.#isWaiting = false;
    if (this.#next.length > 0) this.#flush();
  }
}

/** Confirmations and renewals are sent here. Of their replies, texts mean that the lock is held. */
function isHold(reply: unknown): boolean {
  return typeof reply === 'string';
}
