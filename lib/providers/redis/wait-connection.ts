import type { Clock, LockLogger } from '../../engine/lock-provider.js';
import { CommandConnection } from './command-connection.js';
import type { RedisConnection } from './redis-client.js';

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
 * A connection whose commands are answered only when `replicas` replicas have acknowledged what they wrote.
 *
 * `WAIT` covers what its own connection wrote last, and blocks that connection: so it has one of its own, and one `WAIT` is out at a time
 * for all commands that were sent before it. What comes meanwhile goes with the next one.
 */
export class WaitConnection {
  readonly #connection: CommandConnection;
  #next: Sending[] = [];
  #isWaiting = false;
  #limit: number;

  constructor(
    connection: RedisConnection,
    private readonly replicas: number,
    clock: Clock,
    logger: LockLogger,
    private readonly patience: number,
  ) {
    this.#limit = patience;
    const ignore = { onUp: () => undefined, onDown: () => undefined };
    this.#connection = new CommandConnection(connection, clock, logger, patience, ignore);
  }

  connect(): Promise<void> {
    return this.#connection.connect();
  }

  close(): Promise<void> {
    return this.#connection.close();
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
    // Half the patience: a server that is silent for longer counts as dead, and WAIT is silent.
    const limit = Math.max(1, Math.floor(Math.min(this.#limit, this.patience / 2)));
    this.#limit = this.patience;
    this.#isWaiting = true;
    const answered: (() => void)[] = [];
    const failed: Sending[] = [];
    const sent = this.#next.splice(0);
    for (const sending of sent) {
      this.#connection.send(
        sending.command,
        sending.args,
        (reply) => {
          answered.push(() => {
            sending.onReply(reply);
          });
          failed.push(sending);
        },
        // The server's refusal is told as it is; nothing was written.
        sending.onFailure,
      );
    }
    this.#connection.send(
      'wait',
      [String(this.replicas), String(limit)],
      (count) => {
        if (Number(count) >= this.replicas) for (const answer of answered) answer();
        else
          this.#fail(failed, new NotReplicated(`${Number(count)} of ${this.replicas} replicas have acknowledged it.`));
        this.#done();
      },
      (cause) => {
        this.#fail(failed, new NotReplicated('It is not known whether the replicas have it.', { cause }));
        this.#done();
      },
    );
  }

  #fail(sendings: readonly Sending[], error: NotReplicated): void {
    for (const { onFailure } of sendings) onFailure(error);
  }

  #done(): void {
    this.#isWaiting = false;
    if (this.#next.length > 0) this.#flush();
  }
}
