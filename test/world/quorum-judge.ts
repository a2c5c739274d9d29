import { RedlockKeyLayout } from '../../lib/providers/redlock/key-layout.js';
import { RETAINED } from '../../lib/providers/redlock/lock-script.js';
import type { PlannedRedlock } from './plan.js';
import type { RedisModel } from './redis-model.js';

const LAYOUT = new RedlockKeyLayout('lock');
const HOLDER_DIGITS = 32;
/** How long a node without a counter counts as affected after each check, in ms. The next grant brings its counter. */
const LOOKED_AT = 50;
/**
 * Votes that were extended together end within this time, in ms. A vote that ends earlier doesn't belong to the last
 * majority.
 */
const AS_LONG = 100;

/** What follows if so many nodes are affected that the others form no majority, for one process or for all. */
export interface QuorumListener {
  withoutMajority(until: number, place: number | undefined): void;
  /** Votes that no longer have an owner may block a majority. */
  orphaned(until: number): void;
  report(violation: string): void;
}

/**
 * Knows who has the votes of independent nodes, and what a majority guarantees while others fail or lose their data.
 */
export class QuorumJudge {
  /** By holder: when its votes were last requested, and when so many of them were lost that no majority was left. */
  readonly #requestedAt = new Map<string, number>();
  readonly #brokenAt = new Map<string, number>();
  /** The holders for which processes last requested votes, by process and lock. */
  readonly #lastHolder = new Map<string, string>();
  /** Since when votes have existed without a call, by holder and node. */
  readonly #strayedSince = new Map<string, number>();
  /** Until when faults affect nodes: for all processes, and for single processes by place. */
  readonly #hitUntil: number[];
  readonly #hitFor = new Map<number, number[]>();
  /** Until when nodes may have votes without an owner. */
  readonly #orphanedUntil: number[];
  #lostAt = -Infinity;
  #countersLostAt = -Infinity;

  constructor(
    private readonly nodes: readonly RedisModel[],
    private readonly plan: PlannedRedlock,
    private readonly listener: QuorumListener,
  ) {
    this.#hitUntil = nodes.map(() => -Infinity);
    this.#orphanedUntil = nodes.map(() => -Infinity);
  }

  /** A process has sent a script call, which may request votes. */
  sent(process: number, command: readonly string[], now: number): void {
    const count = Number(command[2]);
    for (let index = 1; index < count; index += 1) {
      const [code, vote = ''] = command.slice(3 * index + count + 1);
      if (code !== 'V') continue;
      const holder = vote.slice(0, HOLDER_DIGITS);
      this.#requestedAt.set(holder, now);
      this.#lastHolder.set(`${process} ${command[index + 3]}`, holder);
    }
  }

  /** The holder for which a process has just acquired a lock. */
  holderOf(process: number, key: string): string | undefined {
    const lock = LAYOUT.lockOf(key);
    const votes = this.nodes.map((node) => voteOf(node.textAt(lock)));
    const granted = votes.find((vote) => vote?.process === process && this.hasMajority(vote.holder, key));
    return granted?.holder ?? this.#lastHolder.get(`${process} ${lock}`);
  }

  hasMajority(holder: string, key: string): boolean {
    const lock = LAYOUT.lockOf(key);
    return this.#isMajority(this.nodes.filter((node) => voteOf(node.textAt(lock))?.holder === holder).length);
  }

  /** When the votes for a holder were last requested. */
  requestedAt(holder: string): number {
    return this.#requestedAt.get(holder) ?? -Infinity;
  }

  /** A node is about to lose this key, or everything. Returns whether a majority keeps its counters. */
  loses(node: RedisModel, now: number, key?: string): boolean {
    this.#lostAt = now;
    for (const lock of key === undefined ? node.keys() : [key]) {
      const vote = voteOf(node.textAt(lock));
      if (vote === undefined) continue;
      const left = node.leftAt(lock) - AS_LONG;
      const others = this.nodes.filter(
        (each) => each !== node && voteOf(each.textAt(lock))?.holder === vote.holder && each.leftAt(lock) >= left,
      );
      if (!this.#isMajority(others.length)) this.#brokenAt.set(vote.holder, now);
    }
    if (key !== undefined) return true;
    const counters = this.nodes.filter((each) => each !== node && each.has(LAYOUT.counter)).length;
    if (this.#isMajority(counters)) return true;
    this.#countersLostAt = now;
    return false;
  }

  /** Whether a hold with a lease of `lease` ms may have lost its majority to data loss on nodes. */
  isBroken(holder: string, lease: number, now: number): boolean {
    return now <= (this.#brokenAt.get(holder) ?? -Infinity) + lease;
  }

  /** Whether another caller may get a lock whose holder has lost its majority. Never true with `delayedRestart`. */
  get isForgiving(): boolean {
    return !this.plan.delayedRestart;
  }

  /** When data was last lost that makes the tokens of locks being granted uncertain. */
  get tokensLostAt(): number {
    return this.isForgiving ? this.#lostAt : this.#countersLostAt;
  }

  /** Whether a majority without this node keeps a key locked that this holder retains or is about to retain. */
  isRetained(holder: string, key: string, lost: RedisModel): boolean {
    const texts = this.nodes.filter((node) => node !== lost).map((node) => node.textAt(LAYOUT.lockOf(key)));
    return this.#isMajority(
      texts.filter((text) => text?.startsWith(RETAINED) === true || voteOf(text)?.holder === holder).length,
    );
  }

  /** A fault affects a node for every process, or for the process in this place. */
  hit(index: number, now: number, until: number, place?: number): void {
    raise(this.#hitsFor(place), index, until);
    raise(this.#orphanedUntil, index, until);
    for (const each of place === undefined ? [undefined, ...this.#hitFor.keys()] : [place]) {
      const hits = this.#hitsFor(each).map((one, node) => Math.max(one, this.#hitUntil[node] ?? 0));
      const end = this.#majorityAt(hits);
      if (end > now) this.listener.withoutMajority(end, each);
    }
    const end = this.#majorityAt(this.#orphanedUntil);
    if (end > now) this.listener.orphaned(end);
  }

  /**
   * @param isCalm whether there has been no fault for so long that all votes from before have ended
   * @param isCalled whether a process has a call for this key
   */
  look(now: number, isCalm: boolean, isCalled: (process: number, key: string) => boolean, bound: number): void {
    this.nodes.forEach((node, index) => {
      if (!node.has(LAYOUT.counter)) this.hit(index, now, now + LOOKED_AT);
      for (const lock of node.keys()) {
        const vote = voteOf(node.textAt(lock));
        if (vote === undefined) continue;
        const key = lock.slice(LAYOUT.lockOf('').length);
        const id = `${vote.holder} ${index}`;
        if (!isCalm || now < (this.#orphanedUntil[index] ?? 0) || isCalled(vote.process, key))
          this.#strayedSince.delete(id);
        else if (now - (this.#strayedSince.get(id) ?? now) > bound) {
          this.listener.report(`node ${index + 1} keeps a vote of process ${vote.process} for "${key}"`);
          this.#strayedSince.set(id, Infinity);
        } else if (!this.#strayedSince.has(id)) this.#strayedSince.set(id, now);
      }
    });
  }

  #isMajority(count: number): boolean {
    return count > this.nodes.length / 2;
  }

  /** The time from which a majority is no longer affected. */
  #majorityAt(hitUntil: readonly number[]): number {
    return hitUntil.toSorted((one, other) => other - one)[Math.floor((this.nodes.length - 1) / 2)] ?? -Infinity;
  }

  #hitsFor(place: number | undefined): number[] {
    if (place === undefined) return this.#hitUntil;
    const known = this.#hitFor.get(place) ?? this.nodes.map(() => -Infinity);
    this.#hitFor.set(place, known);
    return known;
  }
}

function raise(times: number[], index: number, time: number): void {
  times[index] = Math.max(time, times[index] ?? -Infinity);
}

/** A process's vote. A counter, a record, and the vote that retains a key belong to no process. */
function voteOf(text: string | undefined): { readonly holder: string; readonly process: number } | undefined {
  if (text === undefined || !/^[\da-f]{32}\d{28}$/.test(text)) return undefined;
  return { holder: text.slice(0, HOLDER_DIGITS), process: Number.parseInt(text.slice(0, 6), 16) };
}
