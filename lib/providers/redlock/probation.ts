import type { Clock, Timer } from '../../api/clock.js';
import type { CommandConnection } from '../redis/client/command-connection.js';
import { isReplyError } from '../redis/client/redis-connection.js';

/**
 * With `delayedRestart`, decides when a node may vote.
 *
 * A node may have lost a vote it cast before its current run. Any such vote has expired once a process has observed the
 * server's current run for `maxLease`. We measure that time on our own monotonic clock, because the server's uptime
 * follows its wall clock, which jumps when corrected after a boot. Afterward, this process stores the run's id on the
 * node, so later processes don't have to wait again.
 */
export class Probation {
  #votesFrom = Infinity;
  /** The last run observed, and when we started observing it (monotonic clock). */
  #seen: { readonly runId: string; readonly since: number } | undefined;
  #timer: Timer | undefined;

  constructor(
    private readonly connection: CommandConnection,
    private readonly clock: Clock,
    private readonly maxLease: number,
    /** The key on the node that records a finished probation. */
    private readonly runKey: string,
  ) {}

  isOver(now: number): boolean {
    return now >= this.#votesFrom;
  }

  /**
   * Called for each new connection, with the server's run id. If the id is unknown because the ACL denies `INFO`, the
   * probation never ends.
   *
   * @throws the connection's error if the connection is lost again
   */
  async begin(runId: string | undefined): Promise<void> {
    this.#votesFrom = Infinity;
    if (runId === undefined) return;
    if (this.#seen?.runId !== runId) this.#seen = { runId, since: this.clock.now() };
    // If the ACL denies access to the key, nothing is noted.
    const note = await this.connection.call('get', this.runKey).then(String, (error: unknown) => {
      if (!isReplyError(error)) throw error;
      return '';
    });
    const [notedRun, notedFor] = note.split(' ');
    // A probation for a shorter maxLease isn't long enough.
    const isNoted = notedRun === runId && Number(notedFor) >= this.maxLease;
    this.#votesFrom = isNoted ? 0 : this.#seen.since + this.maxLease;
    if (!isNoted) this.#noteLater(`${runId} ${this.maxLease}`);
  }

  /** Stops the timer because the connection was lost or closed. */
  stop(): void {
    if (this.#timer !== undefined) this.clock.clearTimer(this.#timer);
    this.#timer = undefined;
  }

  #noteLater(note: string): void {
    const left = this.#votesFrom - this.clock.now();
    if (left <= 0) {
      // If this fails, the node votes anyway, but other processes have to wait as well.
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
