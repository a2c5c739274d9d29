import type { Clock } from '../../api/clock.js';
import type { ZooKeeperFailure } from './zookeeper-client.js';

/** Sent and not answered. */
interface Call {
  readonly sentAt: number;
  readonly fail: (error: ZooKeeperFailure) => void;
}

/** What was sent on a connection and is not answered, so that each of it ends one way or the other: the library forgets some. */
export class Calls {
  /** When anything was heard last. */
  heardAt = -Infinity;
  readonly #open = new Set<Call>();

  constructor(private readonly clock: Clock) {}

  /** When the one that waits the longest was sent, if any waits. */
  get oldest(): number | undefined {
    const [oldest] = this.#open;
    return oldest?.sentAt;
  }

  /** Settles as `operation` does, or fails with {@link fail} if that is earlier. */
  send<T>(operation: () => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const call: Call = { sentAt: this.clock.now(), fail: reject };
      this.#open.add(call);
      const answered = () => {
        // What has failed is not heard any more, whatever the library says of it later.
        if (this.#open.delete(call)) this.heardAt = this.clock.now();
      };
      operation().then(
        (answer) => {
          answered();
          resolve(answer);
        },
        (error: unknown) => {
          answered();
          reject(error);
        },
      );
    });
  }

  /** Nothing of it will be answered. */
  fail(failure: ZooKeeperFailure): void {
    for (const call of this.#open) call.fail(failure);
    this.#open.clear();
  }
}
