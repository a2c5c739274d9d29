import type { Waiter } from '../acquire/waiter.js';
import type { Clock, Timer } from '../../api/clock.js';
import type { DeadlockMember } from '../../api/deadlock.js';
import type { Instance, WaitBoard } from '../../api/lock-provider.js';
import type { LockLogger } from '../../api/logger.js';
import { detached } from '../toolkit/detached.js';
import { WarnedPlaces } from '../toolkit/warned-places.js';
import { findCycle, isLater, type PublishedWait, type WaitLink } from './cycle-search.js';
import { type LinksOf, WaitLook } from './wait-look.js';
import { readWaitRecord, type WaitRecord, WaitRecordWriter } from './wait-record.js';

/** A cycle of which a wait of this process is the victim. */
interface Suspicion {
  readonly cycle: readonly WaitLink[];
  /** When the look ended that saw it first, on the monotonic clock. */
  readonly seenAt: number;
  /** What the next look saw: how often each process of the cycle had published. */
  beats: readonly number[] | undefined;
}

/**
 * One wait of this process: callers under the same locks that wait for the same key in the same mode. It lasts as long as one of them waits.
 */
interface OwnWait {
  readonly name: string;
  readonly key: string;
  /** The locks around its callers. Waits with the same owner have the same grants. */
  readonly owner: string;
  readonly callers: Set<Waiter>;
  oldest: Waiter;
  /** As others know it, from its first publication on. */
  published: PublishedWait | undefined;
  /** In how many records it was, under that id. */
  records: number;
  /** At which beat its key was looked at last. */
  lookedAt: number;
  suspicion: Suspicion | undefined;
}

/** A wait is published from this age on, in ms: almost all waits are shorter, and cost nothing. */
const PUBLISHED_AFTER = 1_000;
/** How often a process publishes, in ms, at most. */
const BEAT = 500;
/** A record ends after so many ms without a beat. */
const KEPT = 3_000;
/**
 * After so many beats, a record was composed after it was read. The first beat may have been in flight when the record was read. The second one was
 * composed after the first was answered, so after it was executed, so after the reading.
 */
const BEATS = 2;
/** Of how many keys for which callers of this process wait one look reads the holders. The others have their turn in a later look. */
const MOST_OWN_KEYS = 64;

/**
 * Finds callers that wait for each other in a cycle, over the processes of one provider, and refuses one of them.
 *
 * Each process publishes one record: for what those callers wait that hold other locks, and by which grants. It looks from its own waits: at the
 * holders of a key, the records of their processes, the keys for which these wait. All processes see the same victim, the latest wait of the cycle, and
 * only the victim's own process refuses it.
 *
 * The proof. T is the end of the look that saw the cycle first. Each wait of the cycle was in a record that was read before T, so it had started, and its
 * owner held the grant, before T. The next look reads how often each process has published, at a moment R after T. When a process has published BEATS
 * times since, its record was composed after R; if the wait is still in it under the same grant, the wait had not ended at T, and the grant was held. The
 * id of a wait is never used again, and a grant that an owner has lost does not come back. So at T the whole cycle existed. No clock takes part. If a
 * record may or may not have been written, all waits get new ids, so the records that follow prove nothing for what was seen before.
 */
export class DeadlockWatch {
  readonly #waits = new Map<string, OwnWait>();
  readonly #waitOf = new Map<Waiter, OwnWait>();
  readonly #numbersOfLocks = new WeakMap<object, number>();
  #numbers = 0;
  #beat = 0;
  /** When the last beat was, on the monotonic clock. */
  #beatAt = -Infinity;
  /** At which beat a wait was removed before the next one. */
  #removedAt = 0;
  /** The last write, and those before it: whether others see it. */
  #writing: Promise<boolean> = Promise.resolve(true);
  /** What others see of this process. */
  #record: WaitRecord | undefined;
  #timer: Timer | undefined;
  #isBusy = false;
  #isStopped = false;
  readonly #warnedOf = new WarnedPlaces();

  constructor(
    private readonly board: WaitBoard,
    private readonly clock: Clock,
    private readonly logger: LockLogger,
    private readonly instance: Instance,
    private readonly provider: string,
    /** Refuses a caller that is in this cycle. Returns its error. */
    private readonly refuse: (caller: Waiter, cycle: readonly DeadlockMember[]) => Error,
  ) {}

  /** A caller has started to wait under other locks. */
  watch(caller: Waiter): void {
    if (this.#isStopped) return;
    const owner = this.#ownerOf(caller);
    const name = `${owner} ${caller.terms.mode} ${caller.key}`;
    let own = this.#waits.get(name);
    if (own === undefined) {
      const { key } = caller;
      own = {
        name,
        key,
        owner,
        callers: new Set(),
        oldest: caller,
        published: undefined,
        records: 0,
        lookedAt: 0,
        suspicion: undefined,
      };
      this.#waits.set(name, own);
    }
    own.callers.add(caller);
    this.#waitOf.set(caller, own);
    // The timers that follow would keep the context of the caller alive.
    if (this.#timer === undefined && !this.#isBusy) detached(this.#wakeIn, PUBLISHED_AFTER);
  }

  /**
   * The caller waits no more, and the next record is without it. A wait by which other callers may be refused already is removed at once, but only
   * one time between two beats: waits that end one after the other cost one record more.
   */
  forget(caller: Waiter): void {
    const own = this.#waitOf.get(caller);
    if (own === undefined) return;
    this.#waitOf.delete(caller);
    own.callers.delete(caller);
    const [oldest] = own.callers;
    if (oldest !== undefined) {
      own.oldest = oldest;
      return;
    }
    this.#waits.delete(own.name);
    if (own.records <= BEATS || this.#removedAt === this.#beat) return;
    this.#removedAt = this.#beat;
    // With the number of the last beat, because less than half a second may have passed since.
    void detached(this.#write);
  }

  stop(): void {
    this.#isStopped = true;
    this.#waits.clear();
    this.#waitOf.clear();
    if (this.#timer !== undefined) this.clock.clearTimer(this.#timer);
    this.#timer = undefined;
    void this.#write();
  }

  readonly #wakeIn = (delay: number): void => {
    this.#timer = this.clock.setTimer(this.#onTime, Math.ceil(Math.max(0, delay)));
  };

  readonly #onTime = (): void => {
    this.#timer = undefined;
    this.#isBusy = true;
    const startedAt = this.clock.now();
    void this.#publishAndLook().then(() => {
      this.#isBusy = false;
      if (this.#isStopped) void this.#write();
      else if (this.#waits.size > 0 || this.#record !== undefined)
        this.#wakeIn(Math.max(startedAt, this.#beatAt) + BEAT - this.clock.now());
    });
  };

  async #publishAndLook(): Promise<void> {
    if (this.#due().some(({ published }) => published === undefined)) {
      // Without the time of the server, new waits stay unpublished. An outage has its own reports.
      const since = await this.board.serverTime().catch(() => undefined);
      if (since !== undefined) for (const own of this.#due()) own.published ??= this.#publishedAs(own, since);
    }
    this.#beat += 1;
    this.#beatAt = this.clock.now();
    if (!(await this.#write()) || this.#record === undefined) return;
    const waits = [...this.#waits.values()].filter(({ records }) => records > 0);
    const linksOf = await this.#look(waits);
    const refused = new Set<string>();
    for (const own of waits) this.#judge(own, linksOf, refused);
  }

  /** The waits that are long enough, the longest first. */
  #due(): OwnWait[] {
    const latest = this.clock.now() - PUBLISHED_AFTER;
    return [...this.#waits.values()].filter(({ oldest }) => oldest.since <= latest);
  }

  #publishedAs({ key, oldest }: OwnWait, since: number): PublishedWait {
    const { terms, subject } = oldest;
    this.#numbers += 1;
    const id = `${this.instance.id}.${this.#numbers}`;
    // A record has whole numbers, and a clock may count fractions of a ms.
    const published = Math.floor(since);
    return { id, key, mode: terms.mode, since: published, instance: this.instance.name, method: subject.method };
  }

  /** The same text for callers under the same locks. */
  #ownerOf({ meanwhile }: Waiter): string {
    const locks = meanwhile?.outer.map((lock) => this.#numberOf(lock)) ?? [];
    const acquired = meanwhile?.acquired.map(({ id }) => id) ?? [];
    return [...locks, ...acquired].join();
  }

  #numberOf(lock: object): number {
    let number = this.#numbersOfLocks.get(lock);
    if (number === undefined) this.#numbersOfLocks.set(lock, (number = this.#numbers += 1));
    return number;
  }

  /** Publishes the waits as they are now, after the writes before. Resolves to whether others see them now. */
  readonly #write = (): Promise<boolean> => {
    const text = this.#compose();
    if (text === null && this.#record === undefined) return this.#writing;
    this.#record = text === null ? undefined : readWaitRecord(this.instance.id, text);
    const written = this.#writing.then(() => this.board.publish(text, KEPT));
    return (this.#writing = written.then(
      () => true,
      () => {
        // A connection may still deliver this record, so others see it, or the one before.
        for (const own of this.#waits.values()) {
          own.published = own.suspicion = undefined;
          own.records = 0;
        }
        return false;
      },
    ));
  };

  #compose(): string | null {
    const writer = new WaitRecordWriter();
    const grantsOf = this.#grants();
    for (const own of this.#waits.values()) {
      if (own.published === undefined) continue;
      const grants = [...grantsOf(own).keys()];
      if (grants.length > 0 && writer.add(own.published, grants)) own.records += 1;
    }
    return writer.text(this.#beat, this.instance.name);
  }

  /** The grants under which an own wait waits, with their keys. Those of each owner are computed one time, and are one object. */
  #grants(): (own: OwnWait) => ReadonlyMap<string, string> {
    const now = this.clock.now();
    const byOwner = new Map<string, { grants: ReadonlyMap<string, string>; keys: ReadonlySet<string> }>();
    return ({ owner, oldest, key }) => {
      let held = byOwner.get(owner);
      if (held === undefined) {
        const grants = grantsOfOwner(oldest, this.provider, now);
        byOwner.set(owner, (held = { grants, keys: new Set(grants.values()) }));
      }
      // A caller that waits for its own holder waits under the others of its owner.
      return held.keys.has(key) ? new Map([...held.grants].filter(([, other]) => other !== key)) : held.grants;
    };
  }

  async #look(waits: readonly OwnWait[]): Promise<LinksOf> {
    const look = new WaitLook(this.board, this.instance.id, this.#record);
    const keys = new Set<string>();
    for (const own of waits.toSorted(byTurn)) {
      if (keys.size === MOST_OWN_KEYS && !keys.has(own.key)) continue;
      keys.add(own.key);
      own.lookedAt = this.#beat;
    }
    const published = waits.flatMap((own) => own.published ?? []);
    const [first] = published;
    if (first === undefined) return look.linksOf;
    const latest = published.reduce((one, other) => (isLater(one, other) ? one : other), first);
    const grantsOf = this.#grants();
    const held = new Set([...new Set(waits.map(grantsOf))].flatMap((grants) => [...grants.values()]));
    await look.from(keys, latest, (key) => held.has(key));
    return look.linksOf;
  }

  #judge(own: OwnWait, linksOf: LinksOf, refused: Set<string>): void {
    const { published, suspicion } = own;
    if (published === undefined || own.lookedAt !== this.#beat) return;
    const beats = suspicion && beatsOf(published, suspicion.cycle, linksOf);
    if (suspicion === undefined || beats === undefined) {
      const cycle = findCycle(published, linksOf);
      own.suspicion = cycle && { cycle, seenAt: this.clock.now(), beats: undefined };
      return;
    }
    const before = (suspicion.beats ??= beats);
    if (!beats.every((beat, index) => beat >= (before[index] ?? Infinity) + BEATS)) return;
    const { cycle, seenAt } = suspicion;
    // A wait that was refused after this look is not in a cycle any more.
    if (cycle.some(({ wait }) => refused.has(wait.id))) return;
    const held = this.#grants()(own).get(cycle.at(-1)?.grant ?? '');
    if (held === undefined) return;
    refused.add(published.id);
    // Who came later was not in the cycle when it was seen.
    for (const caller of [...own.callers].filter(({ since }) => since <= seenAt)) {
      this.#warn(caller, this.refuse(caller, membersOf(held, cycle)));
    }
    own.suspicion = undefined;
  }

  #warn(caller: Waiter, { message }: Error): void {
    const isNew = this.#warnedOf.add(caller.subject.method ?? caller.key);
    if (isNew) this.logger.warn(`${message} (Warned once for each method, or key of a call.)`);
  }
}

/** Suspected waits first, then those whose keys were not looked at for the longest time. */
function byTurn(one: OwnWait, other: OwnWait): number {
  return Number(other.suspicion !== undefined) - Number(one.suspicion !== undefined) || one.lookedAt - other.lookedAt;
}

/** The keys that the owner of a waiter holds, by the ids of their grants: without limited ones, for which no caller waits alone. */
function grantsOfOwner({ meanwhile }: Waiter, provider: string, now: number): ReadonlyMap<string, string> {
  const grants = new Map<string, string>();
  if (meanwhile === undefined) return grants;
  const around = meanwhile.outer.flatMap((lock) => (lock.isOpen && lock.provider === provider ? lock.holds : []));
  for (const hold of [...meanwhile.acquired, ...around]) {
    if (hold.terms.limited === undefined && hold.isValid(now)) grants.set(hold.grant.request.id, hold.key);
  }
  return grants;
}

/** How often the processes of a cycle had published when they were read; `undefined` if the cycle is not there any more. */
function beatsOf(start: PublishedWait, cycle: readonly WaitLink[], linksOf: LinksOf): readonly number[] | undefined {
  let from = start;
  const beats: number[] = [];
  for (const { grant, wait } of cycle) {
    const now = linksOf(from.key).find((link) => link.grant === grant && link.wait.id === wait.id);
    if (now === undefined) return undefined;
    beats.push(now.beat);
    from = wait;
  }
  return beats;
}

/** @param held the key of the victim by which the cycle is closed */
function membersOf(held: string, cycle: readonly WaitLink[]): readonly DeadlockMember[] {
  const own = cycle.at(-1)?.wait;
  let wanted = own?.key ?? '';
  const members: DeadlockMember[] = own ? [memberOf(own, held)] : [];
  for (const { wait } of cycle.slice(0, -1)) {
    members.push(memberOf(wait, wanted));
    wanted = wait.key;
  }
  return members;
}

function memberOf({ instance, method, key, mode }: PublishedWait, holds: string): DeadlockMember {
  return { instance, method, holds, waitsFor: key, mode };
}
