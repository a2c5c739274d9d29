import type { Call } from './judge.js';

/** How long before a caller's refusal its cycle may have ended, in ms: the last read and its proof were in progress. */
const LATE = 5_000;
/** The callers that one read refuses, each because of its own cycle, are notified within this many ms, in any order. */
const SAME_LOOK = 1;
/** The time until a cycle in a healthy fleet is refused, in ms. */
const REFUSED_WITHIN = 10_000;

interface Waiting {
  /** The calls that waited for each other, including this one, when the cycle was last seen. */
  cycle: readonly Call[];
  seenAt: number;
  /** When another of its callers was refused, after which this one is in no other cycle. */
  endedAt: number;
  /** The calls that certainly wait for each other, and since when. */
  sure: { readonly cycle: readonly Call[]; readonly since: number } | undefined;
}

/**
 * Decides whether callers refused as deadlocked were deadlocked, and whether any others wait for each other forever.
 */
export class DeadlockJudge {
  readonly #waiting = new Map<Call, Waiting>();

  constructor(
    private readonly calls: ReadonlySet<Call>,
    private readonly report: (violation: string) => void,
  ) {}

  /** @param healthySince since when there have been no faults */
  look(now: number, healthySince: number): void {
    const { calls } = this;
    for (const call of this.#waiting.keys())
      if (!calls.has(call) || call.lock !== undefined) this.#waiting.delete(call);
    for (const call of calls) {
      if (call.lock !== undefined || (call.outer === undefined && call.keys.length === 1)) continue;
      const known = this.#waiting.get(call) ?? { cycle: [], seenAt: -Infinity, endedAt: Infinity, sure: undefined };
      this.#waiting.set(call, known);
      const cycle = findCycle(call, calls, true);
      if (cycle !== undefined) Object.assign(known, { cycle, seenAt: now, endedAt: Infinity });
      const sure = cycle && findCycle(call, calls, false);
      const isOver = known.sure?.cycle.some((member) => !calls.has(member) || member.lock !== undefined) ?? true;
      if (sure === undefined) known.sure = undefined;
      else if (isOver) known.sure = { cycle: sure, since: now };
      if (known.sure === undefined || now - Math.max(known.sure.since, healthySince) <= REFUSED_WITHIN) continue;
      const waited = (now - known.sure.since).toFixed(0);
      this.report(`${call.name} and others have waited for each other for ${waited} ms, and none was refused`);
      known.sure = { cycle: known.sure.cycle, since: Infinity };
    }
  }

  /** The call was refused because it and others wait for each other. */
  refused(call: Call, now: number): void {
    const known = this.#waiting.get(call);
    if (known === undefined || now - known.seenAt > LATE || now - known.endedAt > SAME_LOOK) {
      this.report(`${call.name} was refused as deadlocked, but was not`);
      return;
    }
    const others = new Set([...this.calls].filter((other) => other !== call));
    for (const member of known.cycle) {
      const other = this.#waiting.get(member);
      if (other && findCycle(member, others, true) === undefined) other.endedAt = Math.min(now, other.endedAt);
    }
  }
}

/**
 * The calls that wait for each other, starting with this one.
 *
 * @param isPossible whether to include calls that may not hold their keys: calls for several keys, because the number
 * they hold is unknown, and calls that have lost their locks
 */
function findCycle(start: Call, calls: ReadonlySet<Call>, isPossible: boolean): Call[] | undefined {
  const seen = new Set<Call>();
  const search = (waiter: Call): Call[] | undefined => {
    if (seen.has(waiter)) return undefined;
    seen.add(waiter);
    for (const holder of calls) {
      const has = isPossible
        ? holder.lock !== undefined || (holder !== waiter && holder.keys.length > 1)
        : // The server may have given a lost lock to another caller.
          holder.lock !== undefined && !holder.isLost && !holder.isSignaled;
      if (!has || !waiter.keys.some((key) => holder.keys.includes(key))) continue;
      if (waiter.mode === 'shared' && holder.mode === 'shared') continue;
      for (const next of calls) {
        // The calls that wait while the holder has that key: the holder itself, if it waits for more keys, or a call
        // nested in it.
        if (next.lock !== undefined || !(next === holder || isUnder(next, holder))) continue;
        const rest = next === start ? [] : search(next);
        if (rest !== undefined) return [waiter, ...rest];
      }
    }
    return undefined;
  };
  return search(start);
}

function isUnder(call: Call, outer: Call): boolean {
  for (let each = call.outer; each !== undefined; each = each.outer) if (each === outer) return true;
  return false;
}
