import { CommandConnection, type ConnectionListener } from './client/command-connection.js';
import type { ConnectionSettings } from './client/open-connection.js';
import type { RedisConnection } from './client/redis-connection.js';

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
export class WaitConnection extends CommandConnection {
  #next: Sending[] = [];
  #isWaiting = false;
  #limit: number;

  constructor(
    connection: RedisConnection,
    settings: ConnectionSettings,
    listener: ConnectionListener,
    private readonly replicas: number,
  ) {
    super(connection, settings, listener);
    this.#limit = settings.commandTimeout;
  }

  /** The next `WAIT` leaves most of a lease of `lease` ms to the task. */
  limit(lease: number): void {
    this.#limit = Math.min(this.#limit, lease / 4);
  }

  override send(command: string, args: string[], onReply: Sending['onReply'], onFailure: Sending['onFailure']): void {
    this.#next.push({ command, args, onReply, onFailure });
    if (!this.#isWaiting) this.#flush();
  }

  #flush(): void {
    // Half the timeout: a server that is silent for longer counts as dead, and WAIT is silent.
    const { commandTimeout } = this.settings;
    const limit = Math.max(1, Math.floor(Math.min(this.#limit, commandTimeout / 2)));
    this.#limit = commandTimeout;
    this.#isWaiting = true;
    const answered: { readonly sending: Sending; readonly reply: unknown }[] = [];
    for (const sending of this.#next.splice(0)) {
      super.send(
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
    super.send(
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
