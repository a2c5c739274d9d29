import type { Waiter } from '../acquire/waiter.js';
import type { Clock, Timer } from '../../api/clock.js';
import type { DeadlockMember } from '../../api/deadlock.js';
import type { Instance, WaitBoard } from '../../api/lock-provider.js';
import type { LockLogger } from '../../api/logger.js';
import { detached } from '../toolkit/detached.js';
import { promised } from '../toolkit/promised.js';
import { WarnedPlaces } from '../toolkit/warned-places.js';
import {
  beatsOf,
  findCycle,
  isLater,
  type LinksOf,
  membersOf,
  type PublishedWait,
  type WaitLink,
} from './cycle-search.js';
import { WaitScan } from './wait-scan.js';
import { readWaitRecord, type WaitRecord, WaitRecordWriter } from './wait-record.js';

/** A probable cycle whose victim is one of this process's waits. */
interface Suspicion {
  readonly cycle: readonly WaitLink[];
  /** When the scan that first saw the cycle ended. */
  readonly seenAt: number;
  /** How many records each process in the cycle had published as of the next scan. */
  beats: readonly number[] | undefined;
}

/**
 * A wait in this process, shared by all callers that hold the same locks and wait for the same key in the same mode.
 */
interface OwnWait {
  readonly name: string;
  readonly key: string;
  /** Identifies the locks around the callers. Waits with the same owner have the same grants. */
  readonly owner: string;
  readonly callers: Set<Waiter>;
  oldest: Waiter;
  /** What other processes see once the wait has been published. */
  published: PublishedWait | undefined;
  /** How many records have contained the wait under its current id. */
  records: number;
  /** The beat of the last scan that included the key. */
  scannedAt: number;
  suspicion: Suspicion | undefined;
}

/** Waits shorter than this are not published. Almost all waits are shorter, so they cost nothing. */
const PUBLISH_AFTER_MS = 1_000;
/** The minimum time between a process's scheduled publications. */
const BEAT_MS = 500;
/** A record expires if there is no beat for this long. */
const RECORD_TTL_MS = 3_000;
/**
 * How many beats must pass before a record is known to be newer than a read. The first record may have been in flight
 * during the read. The second was composed after the first got a response, so after the first was executed and thus
 * after the read.
 */
const BEATS = 2;
/** How many of the keys this process waits for are included in one scan. The rest are left for later scans. */
const MAX_OWN_KEYS = 64;

/**
 * Finds deadlocks (cycles of callers waiting for each other) across all processes that share a provider. Rejects one
 * caller in each cycle.
 *
 * Each process publishes one record, listing the waits of its callers that hold other locks, and the grants of those
 * locks. Starting from its own waits, it reads the holders of each key, the records of their processes, then the
 * holders of the keys that those holders wait for, and so on. All processes choose the same victim, the latest wait of
 * the cycle, and only the victim's own process rejects it.
 *
 * Proof that no caller is rejected without a deadlock: let T be the end of the scan that first saw the cycle. Each wait
 * of the cycle was in a record that was read before T, so before T the wait had started and its owner held the grant.
 * The next scan reads the beat of each process, at a time R after T. Once a process has published BEATS more records,
 * its latest one was composed after R. If that record still has the wait under the same grant, then at T the wait had
 * not ended and the grant was held, because the id of a wait is never reused and a lost grant never comes back. So the
 * whole cycle existed at T. The proof doesn't rely on clocks. If it is unknown whether a record was written, all waits
 * get new ids, so later records prove nothing about earlier scans.
 */
export class DeadlockWatch {
  readonly #waits = new Map<string, OwnWait>();
  readonly #waitOf = new Map<Waiter, OwnWait>();
  readonly #numbersOfLocks = new WeakMap<object, number>();
  #numbers = 0;
  #beat = 0;
  #beatAt = -Infinity;
  /** The last beat in which a wait was removed early: see {@link forget}. */
  #removedAt = 0;
  /** The last write; resolves to whether it succeeded. */
  #writing: Promise<boolean> = Promise.resolve(true);
  /** The record that this process has published. */
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
    /** Rejects a caller that is part of this cycle. Returns the error. */
    private readonly refuse: (caller: Waiter, cycle: readonly DeadlockMember[]) => Error,
  ) {}

  /** Watches a caller that started waiting while holding other locks. */
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
        scannedAt: 0,
        suspicion: undefined,
      };
      this.#waits.set(name, own);
    }
    own.callers.add(caller);
    this.#waitOf.set(caller, own);
    // Runs detached; otherwise, this timer and its successors would retain the caller's async context.
    if (this.#timer === undefined && !this.#isBusy) detached(this.#wakeIn, PUBLISH_AFTER_MS);
  }

  /**
   * Stops watching a caller. Its wait is usually left out of the next record. If the wait could already cause other
   * callers to be rejected, a new record is written immediately, but at most once per beat, so a series of such waits
   * costs only one extra record.
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
    // Repeats the last beat's number, because less than BEAT_MS may have passed since.
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
    void this.#publishAndScan().then(() => {
      this.#isBusy = false;
      if (this.#isStopped) void this.#write();
      else if (this.#waits.size > 0 || this.#record !== undefined)
        this.#wakeIn(Math.max(startedAt, this.#beatAt) + BEAT_MS - this.clock.now());
    });
  };

  async #publishAndScan(): Promise<void> {
    if (this.#due().some(({ published }) => published === undefined)) {
      // New waits can't be published without the server's time. No need to report the failure: outages are reported
      // elsewhere.
      const since = await promised(() => this.board.serverTime()).catch(() => undefined);
      if (since !== undefined) for (const own of this.#due()) own.published ??= this.#publishedAs(own, since);
    }
    this.#beat += 1;
    this.#beatAt = this.clock.now();
    if (!(await this.#write()) || this.#record === undefined) return;
    const waits = [...this.#waits.values()].filter(({ records }) => records > 0);
    const linksOf = await this.#scan(waits);
    const refused = new Set<string>();
    for (const own of waits) this.#judge(own, linksOf, refused);
  }

  /** The waits that are old enough to be published. */
  #due(): OwnWait[] {
    const latest = this.clock.now() - PUBLISH_AFTER_MS;
    return [...this.#waits.values()].filter(({ oldest }) => oldest.since <= latest);
  }

  #publishedAs({ key, oldest }: OwnWait, since: number): PublishedWait {
    const { terms, subject } = oldest;
    this.#numbers += 1;
    const id = `${this.instance.id}.${this.#numbers}`;
    // Records store whole milliseconds, but the server's clock may return fractions.
    const published = Math.floor(since);
    return { id, key, mode: terms.mode, since: published, instance: this.instance.name, method: subject.method };
  }

  /** Callers that hold the same locks get the same text. */
  #ownerOf({ heldLocks }: Waiter): string {
    const locks = heldLocks?.outer.map((lock) => this.#numberOf(lock)) ?? [];
    const acquired = heldLocks?.acquired.map(({ id }) => id) ?? [];
    return [...locks, ...acquired].join();
  }

  #numberOf(lock: object): number {
    let number = this.#numbersOfLocks.get(lock);
    if (number === undefined) this.#numbersOfLocks.set(lock, (number = this.#numbers += 1));
    return number;
  }

  /** Publishes the current waits after all earlier writes. Resolves to whether the record was written. */
  readonly #write = (): Promise<boolean> => {
    const text = this.#compose();
    if (text === null && this.#record === undefined) return this.#writing;
    this.#record = text === null ? undefined : readWaitRecord(this.instance.id, text);
    const written = this.#writing.then(() => this.board.publish(text, RECORD_TTL_MS));
    return (this.#writing = written.then(
      () => true,
      () => {
        // The record may still arrive, so other processes may see this record or the previous one.
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

  /**
   * Returns the grants held by a wait's callers, by id, with their keys. Computes them once per owner so they can be
   * compared by identity.
   */
  #grants(): (own: OwnWait) => ReadonlyMap<string, string> {
    const now = this.clock.now();
    const byOwner = new Map<string, { grants: ReadonlyMap<string, string>; keys: ReadonlySet<string> }>();
    return ({ owner, oldest, key }) => {
      let held = byOwner.get(owner);
      if (held === undefined) {
        const grants = grantsOfOwner(oldest, this.provider, now);
        byOwner.set(owner, (held = { grants, keys: new Set(grants.values()) }));
      }
      // If a caller waits for its own owner's lock, that lock doesn't count as held during the wait.
      return held.keys.has(key) ? new Map([...held.grants].filter(([, other]) => other !== key)) : held.grants;
    };
  }

  async #scan(waits: readonly OwnWait[]): Promise<LinksOf> {
    const scan = new WaitScan(this.board, this.instance.id, this.#record);
    const keys = new Set<string>();
    for (const own of waits.toSorted(byPriority)) {
      if (keys.size === MAX_OWN_KEYS && !keys.has(own.key)) continue;
      keys.add(own.key);
      own.scannedAt = this.#beat;
    }
    const published = waits.flatMap((own) => own.published ?? []);
    const [first] = published;
    if (first === undefined) return scan.linksOf;
    const latest = published.reduce((one, other) => (isLater(one, other) ? one : other), first);
    const grantsOf = this.#grants();
    const held = new Set([...new Set(waits.map(grantsOf))].flatMap((grants) => [...grants.values()]));
    await scan.from(keys, latest, (key) => held.has(key));
    return scan.linksOf;
  }

  #judge(own: OwnWait, linksOf: LinksOf, refused: Set<string>): void {
    const { published, suspicion } = own;
    if (published === undefined || own.scannedAt !== this.#beat) return;
    const beats = suspicion && beatsOf(published, suspicion.cycle, linksOf);
    if (suspicion === undefined || beats === undefined) {
      const cycle = findCycle(published, linksOf);
      own.suspicion = cycle && { cycle, seenAt: this.clock.now(), beats: undefined };
      return;
    }
    const before = (suspicion.beats ??= beats);
    if (!beats.every((beat, index) => beat >= (before[index] ?? Infinity) + BEATS)) return;
    const { cycle, seenAt } = suspicion;
    // If another wait in the cycle was just rejected, the cycle is already broken.
    if (cycle.some(({ wait }) => refused.has(wait.id))) return;
    const held = this.#grants()(own).get(cycle.at(-1)?.grant ?? '');
    if (held === undefined) return;
    refused.add(published.id);
    // Callers that arrived later were not part of the proven cycle.
    for (const caller of [...own.callers].filter(({ since }) => since <= seenAt)) {
      this.#warn(caller, this.refuse(caller, membersOf(held, cycle)));
    }
    own.suspicion = undefined;
  }

  #warn(caller: Waiter, { message }: Error): void {
    const isNew = this.#warnedOf.add(caller.subject.method ?? caller.key);
    if (isNew) this.logger.warn(`${message} (Warned once per method or key.)`);
  }
}

/** Suspected waits come first, then the least recently scanned ones. */
function byPriority(one: OwnWait, other: OwnWait): number {
  return Number(other.suspicion !== undefined) - Number(one.suspicion !== undefined) || one.scannedAt - other.scannedAt;
}

/**
 * The keys that a waiter's owner holds, by grant id. Excludes limited locks, because one holder's release is enough for
 * a waiter.
 */
function grantsOfOwner({ heldLocks }: Waiter, provider: string, now: number): ReadonlyMap<string, string> {
  const grants = new Map<string, string>();
  if (heldLocks === undefined) return grants;
  const around = heldLocks.outer.flatMap((lock) => (lock.isOpen && lock.provider === provider ? lock.holds : []));
  for (const hold of [...heldLocks.acquired, ...around]) {
    if (hold.terms.limited === undefined && hold.isValid(now)) grants.set(hold.grant.request.id, hold.key);
  }
  return grants;
}
