import type { LockEvent } from '../../api/lock-events.js';
import type { LockContention, WaitSum } from '../../api/lock-info.js';
import type { Holding } from '../../api/lock-provider.js';
import type { ContentionTrace } from '../../api/lock-traces.js';
import { contentionChannel } from '../events/channels.js';
import { familyOf } from '../events/subject.js';
import type { Waiter } from '../acquire/waiter.js';
import type { Holder } from '../hold/holder.js';
import { holderSeenFor } from './holder-report.js';

/** The last row sums up the templates that came after the others. */
const MOST_ROWS = 500;
const MOST_INSTANCES = 8;

type Cause = ContentionTrace['blockedBy'];
/** The holder when the caller began to wait, or `null` if that was not known. `undefined` if it has not waited for a lock. */
type Found = Holding | null | undefined;

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

/** The callers of one template. */
class Row {
  readonly #sums: Readonly<Record<Cause, Sum>> = { queue: new Sum(), holder: new Sum(), unknown: new Sum() };
  /** Of `holder`, by instance. */
  readonly #instances = new Map<string | null, Sum>();

  constructor(
    private readonly template: string | null,
    private readonly provider: string | null,
  ) {}

  /** Answers under which instance it was added. */
  add(waited: number, cause: Cause, instance: string | null): string | null {
    this.#sums[cause].add(waited);
    if (cause !== 'holder') return null;
    const named = this.#instances.has(null) ? this.#instances.size - 1 : this.#instances.size;
    const name = instance !== null && (this.#instances.has(instance) || named < MOST_INSTANCES) ? instance : null;
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
 * How long the callers of one application have waited for a lock that was busy, and for whom, since it started. Only a caller that waits is known here:
 * one that finds its lock free costs nothing.
 */
export class Contention {
  /** By provider and template. The row of the rest has no name. */
  readonly #rows = new Map<string, Row>();

  /** The caller was let in. */
  granted(caller: Waiter, found: Found, { grant, grantedAt: now }: Holder): void {
    if (found === undefined) return;
    if (this.#isHandedOn(caller, now)) this.#add(caller, now, 'queue', null);
    else {
      const seen = holderSeenFor(grant.request, caller.queue.core);
      // A backend that looks only now sees the caller itself.
      this.#addFor(caller, found, seen !== null && seen.seenAt < now ? seen : null, now);
    }
  }

  /** The caller waits no more. `seen`: the holder that kept it out, as it was last seen. */
  ended(caller: Waiter, found: Found, seen: Holding | null, now: number): void {
    if (found === undefined) return;
    if (this.#isHandedOn(caller, now)) this.#add(caller, now, 'queue', null);
    else this.#addFor(caller, found, seen, now);
  }

  /** Others of this process had the lock while it waited. Readers that enter together with it were not before it. */
  #isHandedOn({ since, queue: { enteredAt } }: Waiter, now: number): boolean {
    return enteredAt > since && enteredAt < now;
  }

  #addFor(caller: Waiter, found: Holding | null, seen: Holding | null, now: number): void {
    const { since } = caller;
    const last = seen !== null && seen.seenAt >= (found?.seenAt ?? 0) ? seen : found;
    this.#add(caller, now, causeOf(found, last, since), last?.instance ?? null);
  }

  #add({ subject, since }: Waiter, now: number, blockedBy: Cause, blocking: string | null): void {
    const waited = now - since;
    const instance = this.#rowOf(subject).add(waited, blockedBy, blocking);
    if (!contentionChannel.hasSubscribers) return;
    contentionChannel.publish({ ...subject, waited: Math.round(waited), blockedBy, instance });
  }

  /** The rows, the longest wait first. */
  get rows(): LockContention[] {
    return [...this.#rows.values()].sort((one, other) => other.waited - one.waited).map(({ contention }) => contention);
  }

  #rowOf({ key, provider, template }: LockEvent): Row {
    const name = template ?? familyOf(key);
    const path = `${provider}:${name}`;
    const isRoom = this.#rows.size < MOST_ROWS - 1;
    const found = this.#rows.get(path) ?? (isRoom ? undefined : this.#rows.get(''));
    if (found) return found;
    const row = isRoom ? new Row(name, provider) : new Row(null, null);
    this.#rows.set(isRoom ? path : '', row);
    return row;
  }
}

/**
 * @param found the holder when the caller began to wait
 * @param last the holder as it was last seen
 * @param since when the caller came
 */
function causeOf(found: Holding | null, last: Holding | null, since: number): Cause {
  if (last === null || last.holders > 1 || last.instance === null) return 'unknown';
  if (last.since !== null) return last.since > since ? 'queue' : 'holder';
  // Its age is not known. One look does not show whether others had the lock afterwards.
  if (found === null || found === last || found.holders > 1) return 'unknown';
  return found.instance === last.instance ? 'holder' : 'queue';
}

function sumOf({ waits, waited }: Sum): WaitSum {
  return { waits, waited };
}
