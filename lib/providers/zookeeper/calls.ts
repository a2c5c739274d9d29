import type { Clock } from '../../api/clock.js';
import type { ZooKeeperFailure } from './zookeeper-client.js';

/** Sent and not answered. */
interface Call {
  readonly sentAt: number;
  readonly fail: (error: ZooKeeperFailure) => void;
}

/** The calls that were sent on a connection and are not answered. This class settles each of them, because the library forgets some. */
export class Calls {
  /** When the last answer arrived. */
  heardAt = -Infinity;
  readonly #open = new Set<Call>();

  constructor(private readonly clock: Clock) {}

  /** When the oldest unanswered call was sent. */
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
        // A call that has failed is over, whatever the library reports about it later.
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

  /** Fails all of them: none will be answered. */
  fail(failure: ZooKeeperFailure): void {
    for (const call of this.#open) call.fail(failure);
    this.#open.clear();
  }
}
