import type { LockEvent } from '../../api/lock-events.js';
import type { LockContention, WaitSum } from '../../api/lock-info.js';
import type { Holding } from '../../api/lock-provider.js';
import type { ContentionTrace } from '../../api/lock-traces.js';
import { contentionChannel } from '../events/channels.js';
import { familyOf } from '../events/subject.js';
import type { Waiter } from '../acquire/waiter.js';
import type { Holder } from '../hold/holder.js';
import { holderSeenFor } from './holder-report.js';

/** The last row sums all templates that appeared after the table was full. */
const MAX_ROWS = 500;
const MAX_INSTANCES = 8;

type Cause = ContentionTrace['blockedBy'];
/** The holder at the start of the wait, or `null` if it was unknown. `undefined` if the caller did not wait. */
type FirstSeen = Holding | null | undefined;

class Sum {
  waits = 0;
  #waited = 0;

  add(waited: number): void {
    this.waits += 1;
    this.#waited += waited;
  }

  get waited(): number {
    return Math.round(this.#waited);
  }
}

/** One template's waits. */
class Row {
  readonly #sums: Readonly<Record<Cause, Sum>> = { queue: new Sum(), holder: new Sum(), unknown: new Sum() };
  /** Waits whose cause is `holder`, grouped by instance. */
  readonly #instances = new Map<string | null, Sum>();

  constructor(
    private readonly template: string | null,
    private readonly provider: string | null,
  ) {}

  /** Returns the instance that the wait was counted under; `null` for any after the first eight. */
  add(waited: number, cause: Cause, instance: string | null): string | null {
    this.#sums[cause].add(waited);
    if (cause !== 'holder') return null;
    const named = this.#instances.has(null) ? this.#instances.size - 1 : this.#instances.size;
    const name = instance !== null && (this.#instances.has(instance) || named < MAX_INSTANCES) ? instance : null;
    let sum = this.#instances.get(name);
    if (!sum) this.#instances.set(name, (sum = new Sum()));
    sum.add(waited);
    return name;
  }

  get waited(): number {
    const { queue, holder, unknown } = this.#sums;
    return queue.waited + holder.waited + unknown.waited;
  }

  get contention(): LockContention {
    const { queue, holder, unknown } = this.#sums;
    const instances = Array.from(this.#instances, ([instance, sum]) => ({ instance, ...sumOf(sum) }));
    return {
      ...{ template: this.template, provider: this.provider },
      ...{ queue: sumOf(queue), holder: sumOf(holder), unknown: sumOf(unknown) },
      instances: instances.sort((one, other) => other.waited - one.waited),
    };
  }
}

/**
 * How long one application's callers have waited for busy locks since startup, and which holders blocked them.
 * A caller that finds its lock free is not counted and costs nothing.
 */
export class Contention {
  /** Keyed by provider and template. The last row's key is the empty string. */
  readonly #rows = new Map<string, Row>();

  /** Counts a wait that ended with the lock being acquired. */
  granted(caller: Waiter, first: FirstSeen, { grant, grantedAt: now }: Holder): void {
    if (first === undefined) return;
    if (this.#wasHandedOff(caller, now)) this.#add(caller, now, 'queue', null);
    else {
      const last = holderSeenFor(grant.request, caller.queue.core);
      // A holder that the backend first saw after the grant is the caller itself.
      this.#addFor(caller, first, last !== null && last.seenAt < now ? last : null, now);
    }
  }

  /** Counts a wait that ended without the lock. `last`: the latest observation of the holder. */
  ended(caller: Waiter, first: FirstSeen, last: Holding | null, now: number): void {
    if (first === undefined) return;
    if (this.#wasHandedOff(caller, now)) this.#add(caller, now, 'queue', null);
    else this.#addFor(caller, first, last, now);
  }

  /**
   * Whether other callers in this process got the lock during the wait. Readers that enter along with the caller don't
   * count.
   */
  #wasHandedOff({ since, queue: { enteredAt } }: Waiter, now: number): boolean {
    return enteredAt > since && enteredAt < now;
  }

  #addFor(caller: Waiter, first: Holding | null, last: Holding | null, now: number): void {
    const { since } = caller;
    const latest = last !== null && last.seenAt >= (first?.seenAt ?? 0) ? last : first;
    this.#add(caller, now, causeOf(first, latest, since), latest?.instance ?? null);
  }

  #add({ subject, since }: Waiter, now: number, blockedBy: Cause, blocking: string | null): void {
    const waited = now - since;
    const instance = this.#rowOf(subject).add(waited, blockedBy, blocking);
    if (!contentionChannel.hasSubscribers) return;
    contentionChannel.publish({ ...subject, waited: Math.round(waited), blockedBy, instance });
  }

  /** Sorted by total time waited, longest first. */
  get rows(): LockContention[] {
    return [...this.#rows.values()].sort((one, other) => other.waited - one.waited).map(({ contention }) => contention);
  }

  #rowOf({ key, provider, template }: LockEvent): Row {
    const name = template ?? familyOf(key);
    const path = `${provider}:${name}`;
    const hasRoom = this.#rows.size < MAX_ROWS - 1;
    const known = this.#rows.get(path) ?? (hasRoom ? undefined : this.#rows.get(''));
    if (known) return known;
    const row = hasRoom ? new Row(name, provider) : new Row(null, null);
    this.#rows.set(hasRoom ? path : '', row);
    return row;
  }
}

/**
 * @param first the holder at the start of the wait
 * @param last the holder as last seen
 * @param since when the wait started
 */
function causeOf(first: Holding | null, last: Holding | null, since: number): Cause {
  if (last === null || last.holders > 1 || last.instance === null) return 'unknown';
  if (last.since !== null) return last.since > since ? 'queue' : 'holder';
  // Without the holder's age, a single observation doesn't show whether the lock changed hands during the wait.
  if (first === null || first === last || first.holders > 1) return 'unknown';
  return first.instance === last.instance ? 'holder' : 'queue';
}

function sumOf({ waits, waited }: Sum): WaitSum {
  return { waits, waited };
}
