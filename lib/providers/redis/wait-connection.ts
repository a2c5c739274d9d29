import { CommandConnection, type ConnectionListener } from './client/command-connection.js';
import type { ConnectionSettings } from './client/open-connection.js';
import type { RedisConnection } from './client/redis-connection.js';

interface Sending {
  readonly command: string;
  readonly args: string[];
  readonly onReply: (reply: unknown) => void;
  readonly onFailure: (error: unknown) => void;
}

/** The error if too few replicas acknowledged a write in time, or if it is unknown how many did. */
export class NotReplicated extends Error {
  override readonly name = 'NotReplicated';
}

/**
 * Sends commands, and delivers their replies once `replicas` replicas have acknowledged the writes.
 *
 * `WAIT` covers its own connection's writes and blocks that connection, so a separate one is needed. Commands are sent
 * in batches, each followed by one `WAIT`. Commands that arrive in the meantime go into the next batch.
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

  /** Limits the next `WAIT` to a quarter of `lease`, so most of the lease is left for the task. */
  limit(lease: number): void {
    this.#limit = Math.min(this.#limit, lease / 4);
  }

  override send(command: string, args: string[], onReply: Sending['onReply'], onFailure: Sending['onFailure']): void {
    this.#next.push({ command, args, onReply, onFailure });
    if (!this.#isWaiting) this.#flush();
  }

  #flush(): void {
    // At most half the timeout: WAIT blocks, and a server that is silent for the whole timeout counts as dead.
    const { commandTimeout } = this.settings;
    const limit = Math.max(1, Math.floor(Math.min(this.#limit, commandTimeout / 2)));
    this.#limit = commandTimeout;
    this.#isWaiting = true;
    const answered: { readonly sending: Sending; readonly reply: unknown }[] = [];
    for (const sending of this.#next.splice(0)) {
      const { command, args, onFailure } = sending;
      // After a failure, nothing was written, so the server's error is passed on.
      super.send(command, args, (reply) => answered.push({ sending, reply }), onFailure);
    }
    const deliver = (error?: NotReplicated) => {
      for (const { sending, reply } of answered) {
        // Without the replicas' acknowledgment, a "held" reply must not be trusted. A "not held" reply is true either
        // way.
        if (error && isHold(reply)) sending.onFailure(error);
        else if (error && Array.isArray(reply))
          sending.onReply(reply.map((each: unknown) => (isHold(each) ? error : each)));
        else sending.onReply(reply);
      }
      this.#isWaiting = false;
      if (this.#next.length > 0) this.#flush();
    };
    super.send(
      'wait',
      [String(this.replicas), String(limit)],
      (count) => {
        const isReplicated = Number(count) >= this.replicas;
        deliver(isReplicated ? undefined : new NotReplicated(`${Number(count)} of ${this.replicas} replicas`));
      },
      (cause) => {
        deliver(new NotReplicated('their number is unknown', { cause }));
      },
    );
  }
}

/**
 * This connection sends only confirmations, renewals, and job records, so a string reply means that the server stores
 * something.
 */
function isHold(reply: unknown): boolean {
  return typeof reply === 'string';
}
