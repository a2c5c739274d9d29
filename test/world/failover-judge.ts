import type { EpochRecord } from '../../lib/providers/failover/epoch-record.js';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { EPOCH } from './machine.js';
import type { PlannedFailover } from './plan.js';
import type { RedisModel } from './redis-model.js';

/** The names of the failover provider, and of its members in order of preference. */
export const FAILOVER = 'locks';
export const MEMBERS = ['a', 'b'] as const;

const RECORD = new KeyLayout('lock').recordOf(FAILOVER);
const TOKENS_PER_EPOCH = 2n ** 52n;
/** How much faster or slower than true time a process may measure. */
const DRIFT = 0.01;
/** The time before a failback, in windows. */
const STAY = 10;
const LONGEST_STAY = 3_600_000;

/** How long a member keeps a lock without a renewal, in ms. */
export function memberLeaseOf({ windows }: PlannedFailover): number {
  return Math.max(10_000, 2 * Math.max(...windows));
}

/** Locking pauses for this long at a switch, in ms. */
export function switchTimeOf({ windows }: PlannedFailover): number {
  return 1.05 * Math.max(...windows);
}

/** A member fails, is found down by most processes, and is replaced within this many ms. */
export function failoverTimeOf({ windows }: PlannedFailover): number {
  return 2.5 * Math.max(...windows);
}

/** A grant, as its token shows it. */
export interface MemberGrant {
  readonly epoch: number;
  readonly model: RedisModel;
  /** The member's own token. */
  readonly token: bigint;
  /** In true time. */
  readonly at: number;
}

interface Epoch {
  readonly active: number;
  readonly since: number;
  readonly record: EpochRecord;
}

/** What follows from faults that processes may notice. */
export interface FailoverListener {
  /** The numbers of running processes. */
  running(): number;
  disturbed(until: number): void;
  /** Only the process in this place is affected. */
  troubled(place: number, until: number): void;
  report(violation: string): void;
}

/**
 * Knows which member grants locks, and what the failover provider guarantees while members, the record, and processes
 * fail.
 */
export class FailoverJudge {
  readonly #epochs = new Map<number, Epoch>();
  #latest: Epoch | undefined;
  #text: string | undefined;
  /** When each member last lost data. */
  readonly #lostAt = MEMBERS.map(() => -Infinity);
  /** Until when a fault affects each process, by place, and all of them. */
  readonly #hitUntil = new Map<number, number>();
  #allHitUntil = -Infinity;
  /** When the last fault ends. */
  #faultsUntil = -Infinity;
  readonly #window: number;

  /**
   * @param record the server that stores the record
   * @param recovery how long the effects of a fault may be noticed after its end
   */
  constructor(
    private readonly members: readonly RedisModel[],
    private readonly record: RedisModel,
    private readonly plan: PlannedFailover,
    private readonly recovery: number,
    private readonly listener: FailoverListener,
  ) {
    this.#window = Math.max(...plan.windows);
  }

  /** A server has executed a command. */
  executed(now: number): void {
    const text = this.record.textAt(RECORD);
    if (text === this.#text || text === undefined) return;
    this.#text = text;
    const record = JSON.parse(text) as EpochRecord;
    const before = this.#latest;
    this.#latest = { active: MEMBERS.indexOf(record.active as 'a'), since: before?.since ?? now, record };
    if (record.epoch === before?.record.epoch) return;
    this.#latest = { ...this.#latest, since: now };
    this.#epochs.set(record.epoch, this.#latest);
    this.#extend(now + switchTimeOf(this.plan));
    this.listener.disturbed(now + switchTimeOf(this.plan));
    if (before) this.#checkSwitch(before, record, now);
  }

  grantOf(token: bigint): MemberGrant | undefined {
    const epoch = Number(token / TOKENS_PER_EPOCH);
    const active = this.#epochs.get(epoch)?.active ?? -1;
    const model = this.members[active];
    if (model === undefined) return undefined;
    const own = token % TOKENS_PER_EPOCH;
    return { epoch, model, token: own, at: Number(own) / 1_000 - EPOCH + (active === 0 ? 0 : this.plan.behind) };
  }

  /** Whether no process holds a lock of this epoch any longer: a window has passed since the next one began. */
  hasEnded({ epoch }: MemberGrant, now: number): boolean {
    return now > (this.#epochs.get(epoch + 1)?.since ?? Infinity) + this.#window;
  }

  /** When the member that granted this last lost data. */
  lostAt({ model }: MemberGrant): number {
    return this.#lostAt[this.members.indexOf(model)] ?? -Infinity;
  }

  loses(model: RedisModel, now: number): void {
    this.#lostAt[this.members.indexOf(model)] = now;
    if (model === this.#active) this.listener.disturbed(now);
  }

  /** A fault affects a server, for every process or for the process in this place. */
  hit(server: number, now: number, until: number, place?: number): void {
    const isAlone = now > this.#faultsUntil + this.recovery;
    this.#extend(until);
    if (place !== undefined) this.#hitUntil.set(place, Math.max(until, this.#hitUntil.get(place) ?? 0));
    else if (server < MEMBERS.length) this.#allHitUntil = Math.max(until, this.#allHitUntil);
    if (!isAlone) this.listener.disturbed(this.#faultsUntil);
    else if (server < MEMBERS.length && this.members[server] !== this.#active) return;
    else if (place !== undefined) this.listener.troubled(place, until);
    else if (server < MEMBERS.length) this.listener.disturbed(this.#isCounted ? this.#replacedBy(now, until) : until);
    else if (until - now >= Math.min(...this.plan.windows) / 2) this.listener.disturbed(until);
  }

  /** A fault affects this process, or all of them. */
  processHit(place: number | undefined, now: number, until: number): void {
    const isAlone = now > this.#faultsUntil + this.recovery;
    this.#extend(until);
    if (place === undefined) this.#allHitUntil = Math.max(until, this.#allHitUntil);
    else this.#hitUntil.set(place, Math.max(until, this.#hitUntil.get(place) ?? 0));
    if (!isAlone) this.listener.disturbed(this.#faultsUntil);
  }

  get #active(): RedisModel | undefined {
    return this.members[this.#latest?.active ?? 0];
  }

  /** Whether no crashed process is counted, so that most reports are those of running processes. */
  get #isCounted(): boolean {
    return Object.keys(this.#latest?.record.reports ?? {}).length === this.listener.running();
  }

  #replacedBy(now: number, until: number): number {
    return Math.min(until, now + failoverTimeOf(this.plan));
  }

  #extend(until: number): void {
    this.#faultsUntil = Math.max(until, this.#faultsUntil);
  }

  #checkSwitch({ since, record: before }: Epoch, { epoch, history, pinned }: EpochRecord, now: number): void {
    const { reason = 'manual', from, to } = history.at(-1) ?? {};
    if (epoch !== before.epoch + 1) this.listener.report(`epoch ${epoch} follows epoch ${before.epoch}`);
    if (reason === 'failback') {
      const stay = Math.min(STAY * Math.min(...this.plan.windows) * 2 ** before.failbacks, LONGEST_STAY);
      if (now - since < (1 - DRIFT) * stay)
        this.listener.report(`"${to}" is used again ${(now - since).toFixed(0)} ms after a switch`);
      if (before.pinned && !pinned) this.listener.report(`"${from}" was left although an operator had chosen it`);
    }
    if (reason === 'failure') this.#checkMajority(from, now);
  }

  /** A member is abandoned only if a fault affects it for most processes. */
  #checkMajority(from: string | undefined, now: number): void {
    const isHit = (until: number) => now <= until + this.recovery;
    if (isHit(this.#allHitUntil)) return;
    const affected = [...this.#hitUntil.values()].filter(isHit).length;
    const running = this.listener.running();
    if (2 * affected <= running)
      this.listener.report(`"${from}" was left because of faults in ${affected} of ${running} processes`);
  }
}
