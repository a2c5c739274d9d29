import type { SwitchReason } from '../../api/failover-state.js';
import type { BackendContext } from '../../api/lock-provider.js';
import { counting, countedUp, type EpochRecord, reported, switched, unreported } from './epoch-record.js';
import type { FailoverSettings } from './failover-options.js';
import type { MemberHealth } from './member-health.js';

const LONGEST_STAY = 3_600_000;
// Without this limit, the only process that can't reach a member would start a roll call every window.
const WINDOWS_BETWEEN_COUNTS = 10;

/**
 * Decides what this process writes to the shared record: which members don't respond to it, and a switch when one is
 * due.
 *
 * The active member is abandoned when it responds to neither this process nor most of the reporting processes. If only
 * one process can't reach the member, that process fails closed. Mutual exclusion doesn't depend on reports, so a late
 * or lost one costs only time.
 */
export class SwitchPolicy {
  readonly #self: string;
  /** The latest roll call that this process has seen, and when it saw it. */
  #count = -1;
  #countSeenAt = -Infinity;

  constructor(
    private readonly context: BackendContext,
    private readonly settings: FailoverSettings,
    /** In order of preference. */
    private readonly health: ReadonlyMap<string, Pick<MemberHealth, 'state'>>,
  ) {
    // Only half an id, because every write contains one per process.
    this.#self = context.random.id().slice(-16);
  }

  /** The next record. @param learnedAt when this process learned of the epoch */
  next(record: EpochRecord, learnedAt: number, now: number): EpochRecord {
    const down = [...this.health].filter(([, { state }]) => state === 'down').map(([name]) => name);
    const next = this.#endCount(reported(record, this.#self, down), now);
    const wanted = this.#destination(next, learnedAt, now);
    if (wanted === undefined) return next;
    if (wanted !== 'outvoted') return this.switched(next, wanted.to, wanted.reason);
    const isCountDue = next.counted && now >= this.#countSeenAt + this.settings.window * WINDOWS_BETWEEN_COUNTS;
    if (!isCountDue) return next;
    this.#count = next.count + 1;
    this.#countSeenAt = now;
    return reported(counting(next), this.#self, down);
  }

  switched(record: EpochRecord, to: string, reason: SwitchReason): EpochRecord {
    const { clock, random } = this.context;
    return switched(record, to, reason, { id: random.id(), at: clock.wallTime() });
  }

  left(record: EpochRecord): EpochRecord {
    return unreported(record, this.#self);
  }

  /** One window after this process saw the roll call start, every live process has answered. */
  #endCount(record: EpochRecord, now: number): EpochRecord {
    if (record.count !== this.#count) {
      this.#count = record.count;
      this.#countSeenAt = record.counted ? -Infinity : now;
    }
    return record.counted || now < this.#countSeenAt + record.window ? record : countedUp(record);
  }

  /** The switch that is due, or `outvoted` if this process wants one but other reports prevent it. */
  #destination(
    { active, failbacks, pinned, reports }: EpochRecord,
    learnedAt: number,
    now: number,
  ): { readonly to: string; readonly reason: SwitchReason } | 'outvoted' | undefined {
    const all = Object.values(reports);
    const missedBy = (name: string) => all.filter(({ down }) => down.includes(name)).length;
    const mostMiss = (name: string) => missedBy(name) * 2 > all.length;
    const names = [...this.health.keys()];
    if (this.#state(active) === 'down') {
      const others = names.filter((name) => this.#state(name) !== 'down');
      if (others.length === 0) return undefined;
      const to = others.find((name) => !mostMiss(name));
      return to !== undefined && mostMiss(active) ? { to, reason: 'failure' } : 'outvoted';
    }
    const stay = Math.min(this.settings.failbackDelay * 2 ** failbacks, LONGEST_STAY);
    if (pinned || now < learnedAt + stay) return undefined;
    const better = names.slice(0, Math.max(0, names.indexOf(active))).filter((name) => this.#state(name) === 'up');
    if (better.length === 0) return undefined;
    const to = better.find((name) => missedBy(name) === 0);
    return to === undefined ? 'outvoted' : { to, reason: 'failback' };
  }

  #state(name: string) {
    return this.health.get(name)?.state;
  }
}
