import type { Clock, Timer } from '../../api/clock.js';
import type { CommandConnection } from '../redis/client/command-connection.js';
import { isReplyError } from '../redis/client/redis-connection.js';

/**
 * With `delayedRestart`: when a node may vote.
 *
 * The node may have forgotten a vote that it gave before it started. Such a vote is over when some process has seen this run of the server
 * for `maxLease`. The time is counted here, on a monotonic clock: the server's own uptime follows its wall clock, which jumps when it is
 * corrected after the boot. At the end this process notes the run on the node, so that processes that come later need not count again.
 */
export class Probation {
  #votesFrom = Infinity;
  /** The run of the server that was seen last, and since when, on our clock. */
  #seen: { readonly runId: string; readonly since: number } | undefined;
  #timer: Timer | undefined;

  constructor(
    private readonly connection: CommandConnection,
    private readonly clock: Clock,
    private readonly maxLease: number,
    /** The key of the note on the node. */
    private readonly runKey: string,
  ) {}

  isOver(now: number): boolean {
    return now >= this.#votesFrom;
  }

  /**
   * Called on each new connection, with the run that it leads to. Without one (the ACL refuses `INFO`), the probation never ends.
   *
   * @throws the error of a connection that is lost again
   */
  async begin(runId: string | undefined): Promise<void> {
    this.#votesFrom = Infinity;
    if (runId === undefined) return;
    if (this.#seen?.runId !== runId) this.#seen = { runId, since: this.clock.now() };
    const [notedRun, notedFor] = (await this.#note()).split(' ');
    // The count for a shorter maxLease is too short.
    const isNoted = notedRun === runId && Number(notedFor) >= this.maxLease;
    this.#votesFrom = isNoted ? 0 : this.#seen.since + this.maxLease;
    if (!isNoted) this.#noteLater(`${runId} ${this.maxLease}`);
  }

  /** The connection is lost or closed. */
  stop(): void {
    if (this.#timer !== undefined) this.clock.clearTimer(this.#timer);
    this.#timer = undefined;
  }

  /** The note on the node, or nothing where the ACL refuses the key. */
  async #note(): Promise<string> {
    try {
      return String(await this.connection.call('get', this.runKey));
    } catch (error) {
      if (!isReplyError(error)) throw error;
      return '';
    }
  }

  #noteLater(note: string): void {
    const left = this.#votesFrom - this.clock.now();
    if (left <= 0) {
      // The node votes also where this fails. Other processes then count by themselves.
      this.connection.call('set', this.runKey, note).catch(() => undefined);
      return;
    }
    const again = () => {
      this.#timer = undefined;
      this.#noteLater(note);
    };
    this.#timer = this.clock.setTimer(again, Math.ceil(left));
  }
}
