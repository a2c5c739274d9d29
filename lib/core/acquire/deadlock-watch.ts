import type { Clock, Timer } from '../../api/clock.js';
import type { DeadlockMember } from '../../api/deadlock.js';
import type { LockDeadlockError } from '../../api/errors.js';
import type { LockEvent } from '../../api/lock-events.js';
import type { Instance, SeenGrant, WaitBoard } from '../../api/lock-provider.js';
import type { LockLogger } from '../../api/logger.js';
import { detached } from '../toolkit/detached.js';
import { instanceIdOf } from '../toolkit/instance-ids.js';
import { findCircle, isLater, keepsOut, type PublishedWait, type WaitLink } from './circle-search.js';
import { grantsOf, type HeldMeanwhile } from './held-meanwhile.js';
import { readRecord, RecordWriter, type WaitRecord } from './published-waits.js';

/** A caller that waits. An interface only because callers import their provider. */
export interface WaitingCaller {
  readonly key: string;
  readonly subject: LockEvent;
  /** When it came to the queue of the key, on the monotonic clock. */
  readonly since: number;
  readonly isQueued: boolean;
  readonly meanwhile: HeldMeanwhile | undefined;
  /** The keys that its owner holds beside the one that it waits for, by the id of their grants: without limited ones, for which nobody waits alone. */
  grantsOfOwner(now: number): ReadonlyMap<string, string>;
  /** The callers of this circle wait for each other, and this one is refused. Answers the error that it gets. */
  refuseDeadlock(circle: readonly DeadlockMember[]): LockDeadlockError;
}

/** A circle of which a caller of this process is the victim. */
interface Suspicion {
  readonly circle: readonly WaitLink[];
  /** When the look was over that saw it first, on the monotonic clock. */
  readonly seenAt: number;
  /** What the next look saw: how often each process of the circle had published. */
  beats: readonly number[] | undefined;
}

/** A caller of this process, as far as it is published. */
interface OwnWait {
  /** From its first publication on. */
  wait: PublishedWait | undefined;
  suspicion: Suspicion | undefined;
  /** In how many records it was. */
  records: number;
  /** At which beat its key was looked at last. */
  lookedAt: number;
}

/** Callers of owners with the same grants that wait for the same key in the same mode. One is published for all of them. */
interface Alike {
  readonly grants: readonly string[];
  /** The keys of these. */
  readonly keys: ReadonlySet<string>;
  readonly first: WaitingCaller;
  readonly own: OwnWait;
  readonly callers: readonly WaitingCaller[];
}

/** A wait is published from this age on, in ms: almost all waits are shorter, and cost nothing. */
const PUBLISHED_AFTER = 1_000;
/** How often a process publishes, in ms, at most. */
const BEAT = 500;
/** A record ends after so many ms without a beat. */
const KEPT = 3_000;
/**
 * So often a process publishes after a look has read its record, before a wait that is still in it was true after the beginning of that look. The first one may
 * have been in flight when the record was read; the second was composed after the answer to the first, which was not executed when the record was read.
 */
const BEATS = 2;
/** How many keys one look reads. */
const MOST_LOOKS = 128;
/** How many of these at most are keys for which callers of this process wait, so that some are left for the keys behind them. Others have their turn in a later look. */
const MOST_OWN = 64;
/** How many records of processes one look reads. */
const MOST_RECORDS = 64;
/** How many holders of a key one look reads. */
const MOST_HOLDERS = 64;
const MOST_WARNINGS = 100;

type Looks = ReadonlyMap<string, readonly WaitLink[]>;

const NONE: readonly WaitLink[] = [];

/**
 * Finds callers that wait for each other in a circle, over the processes of one provider, and refuses one of them.
 *
 * Each process publishes one record: for what those callers wait that hold other locks, and by which grants. It looks from its own callers: the holders of a key,
 * the records of their processes, the keys for which these wait. All see the same victim, the latest of the circle, and only its own process refuses it.
 *
 * The proof. T is the end of the look that saw the circle first. Each wait of it was in a record that was read before T, so it had begun, and its owner held
 * the grant, before T. The next look reads of each process how often it has published, at a moment r after T. When its record has been published BEATS times
 * since, it was composed after r, see BEATS; and if the wait is in it beside the grant, the wait had not ended, and the grant was held, at T. An id of a wait is
 * never used twice, and a grant that an owner has lost does not come back: so at T all of the circle existed. No clock takes part in this. Where
 * a record may or may not have been written, all waits get new ids, so the next records prove nothing for what was seen before.
 */
export class DeadlockWatch {
  readonly #waits = new Map<WaitingCaller, OwnWait>();
  readonly #numbersOfLocks = new WeakMap<object, number>();
  #locks = 0;
  #number = 0;
  #beat = 0;
  /** What the last record has. */
  #published: readonly Alike[] = [];
  /** The last write, and those before it: whether others see it. */
  #writing: Promise<boolean> = Promise.resolve(true);
  /** At which beat waits were removed between two. */
  #removedAt = 0;
  #mine: WaitRecord | undefined;
  /** When it was last published, on the monotonic clock. */
  #beatAt = -Infinity;
  #timer: Timer | undefined;
  #isBusy = false;
  #isStopped = false;
  readonly #warnedOf = new Set<string>();

  constructor(
    private readonly board: WaitBoard,
    private readonly clock: Clock,
    private readonly logger: LockLogger,
    private readonly instance: Instance,
    private readonly provider: string,
  ) {}

  /** A caller has begun to wait under other locks. */
  watch(caller: WaitingCaller): void {
    if (this.#isStopped) return;
    this.#waits.set(caller, { wait: undefined, suspicion: undefined, records: 0, lookedAt: 0 });
    // In no caller's context: the timers that follow would keep that context alive.
    if (this.#timer === undefined && !this.#isBusy) detached(this.#wakeIn, PUBLISHED_AFTER);
  }

  /**
   * The caller waits no more. The next record is without it. One by which others may be refused already is removed at once, but only once in a beat:
   * waits that end one after the other cost one record more.
   */
  forget(caller: WaitingCaller): void {
    const own = this.#waits.get(caller);
    this.#waits.delete(caller);
    if (own === undefined || own.records <= BEATS || this.#removedAt === this.#beat || this.#isStopped) return;
    this.#removedAt = this.#beat;
    // With the same number: that says how often half a second has passed.
    void detached(this.#write, this.#published.filter(({ first, own: each }) => this.#waits.get(first) === each));
  }

  stop(): void {
    this.#isStopped = true;
    this.#waits.clear();
    if (this.#timer !== undefined) this.clock.clearTimer(this.#timer);
    this.#timer = undefined;
    if (!this.#isBusy) void this.#publish([]);
  }

  readonly #wakeIn = (delay: number): void => {
    this.#timer = this.clock.setTimer(this.#onTime, Math.ceil(Math.max(0, delay)));
  };

  readonly #onTime = (): void => {
    this.#timer = undefined;
    this.#isBusy = true;
    const begunAt = this.clock.now();
    void this.#publishAndLook().then(() => {
      this.#isBusy = false;
      if (this.#isStopped) this.stop();
      else if (this.#waits.size > 0 || this.#published.length > 0)
        this.#wakeIn(Math.max(begunAt, this.#beatAt) + BEAT - this.clock.now());
    });
  };

  async #publishAndLook(): Promise<void> {
    const isNew = this.#alike().some(({ own }) => own.wait === undefined);
    // Without it, callers that are not published yet stay so. An outage has its own reports.
    const since = isNew ? await this.board.serverTime().catch(() => undefined) : undefined;
    const alike = this.#alike();
    this.#beatAt = this.clock.now();
    if (since !== undefined) for (const { first, own } of alike) own.wait ??= this.#waitOf(first, since);
    const published = await this.#publish(alike);
    if (published === undefined) return;
    if (published.length === 0 || published.every(({ own }) => own.wait === undefined)) return;
    const looks = await this.#look(published);
    const refused = new Set<string>();
    for (const each of published) this.#judge(each, looks, refused);
  }

  /** The waits that are due, those that have waited longest first. */
  #alike(): Alike[] {
    const now = this.clock.now();
    const sets = new Map<string, ReturnType<typeof setOf>>();
    const all = new Map<string, Alike & { callers: WaitingCaller[] }>();
    for (const [caller, own] of this.#waits) {
      if (!caller.isQueued) this.#waits.delete(caller);
      else if (now - caller.since >= PUBLISHED_AFTER) {
        let owner = this.#ownerOf(caller);
        let set = sets.get(owner);
        if (set === undefined) sets.set(owner, (set = setOf(grantsOf(caller.meanwhile, this.provider, '', now))));
        // One that waits for its own holder waits under the others of its owner.
        if (set.keys.has(caller.key)) {
          owner += ` ${caller.key}`;
          set = sets.get(owner);
          if (set === undefined) sets.set(owner, (set = setOf(caller.grantsOfOwner(now))));
        }
        const { grants, keys } = set;
        if (grants.length === 0) continue;
        const name = `${owner} ${caller.subject.mode} ${caller.key}`;
        const there = all.get(name);
        if (there === undefined) all.set(name, { grants, keys, first: caller, own, callers: [caller] });
        else {
          there.callers.push(caller);
          // One that is published stays so. Otherwise the last one is, which waits longest from now on.
          if (there.own.wait === undefined) Object.assign(there, { first: caller, own });
        }
      }
    }
    return [...all.values()];
  }

  /** The same text for callers under the same locks. */
  #ownerOf({ meanwhile }: WaitingCaller): string {
    let name = '';
    for (const lock of meanwhile?.outer ?? []) name += `${this.#numberOf(lock)},`;
    for (const hold of meanwhile?.acquired ?? []) name += `${hold.request.id},`;
    return name;
  }

  #numberOf(lock: object): number {
    let number = this.#numbersOfLocks.get(lock);
    if (number === undefined) this.#numbersOfLocks.set(lock, (number = this.#locks += 1));
    return number;
  }

  #waitOf({ key, subject: { mode, method } }: WaitingCaller, since: number): PublishedWait {
    this.#number += 1;
    return { id: `${this.instance.id}.${this.#number}`, key, mode, since, instance: this.instance.name, method };
  }

  /** Publishes as many of these waits as fit, and answers them; `undefined` if it is unknown what others see now. */
  async #publish(alike: readonly Alike[]): Promise<readonly Alike[] | undefined> {
    this.#beat += 1;
    return (await this.#write(alike)) ? this.#published : undefined;
  }

  /** Behind the writes before. Answers whether others see it now. */
  readonly #write = (alike: readonly Alike[]): Promise<boolean> => {
    const writer = new RecordWriter(this.instance.id, this.instance.name);
    const wasPublished = this.#published.length > 0;
    this.#published = alike.filter(({ own, grants }) => {
      if (own.wait === undefined) return false;
      own.records += 1;
      if (writer.add({ wait: own.wait, grants })) return true;
      // It was in the record before, and is not any more.
      own.wait = own.suspicion = undefined;
      own.records = 0;
      return false;
    });
    if (writer.isEmpty && !wasPublished) return this.#writing;
    const text = writer.text(this.#beat);
    const written = this.#writing.then(() => this.board.publish(writer.isEmpty ? null : text, KEPT));
    return (this.#writing = written.then(
      () => {
        this.#mine = writer.isEmpty ? undefined : readRecord(this.instance.id, text);
        return true;
      },
      () => {
        // Others may see this record or the one before it, and a connection may still deliver it. So nothing that they have seen counts for what is
        // published next, under a new id.
        for (const own of this.#waits.values()) {
          own.wait = own.suspicion = undefined;
          own.records = 0;
        }
        return false;
      },
    ));
  };

  /** By key: the holders that keep these callers out and wait themselves, those that keep these out, and so on. */
  async #look(published: readonly Alike[]): Promise<Looks> {
    const looks = new Map<string, readonly WaitLink[]>();
    const records = new Map<string, Promise<WaitRecord | undefined>>();
    const own = published.flatMap(({ own: { wait } }) => wait ?? []);
    const latest = own.reduce((one, other) => (isLater(one, other) ? one : other));
    const held = new Set(published.map((each) => each.keys));
    const isOwn = (key: string) => [...held].some((each) => each.has(key));
    let keys = new Set<string>();
    for (const { own } of published.toSorted(byTurn)) {
      if (own.wait !== undefined && (keys.size < MOST_OWN || keys.has(own.wait.key))) {
        keys.add(own.wait.key);
        own.lookedAt = this.#beat;
      }
    }
    while (keys.size > 0) {
      // Keys of the own callers first: with these a circle may be closed.
      const next = [...keys].sort((one, other) => Number(isOwn(other)) - Number(isOwn(one))).slice(0, MOST_LOOKS - looks.size);
      const found = await Promise.all(next.map((key) => this.#linksOf(key, records)));
      for (const [index, key] of next.entries()) looks.set(key, found[index] ?? NONE);
      keys = new Set(
        found
          .flat()
          .filter(({ wait }) => !isLater(wait, latest) && !looks.has(wait.key))
          .map(({ wait }) => wait.key),
      );
      if (looks.size >= MOST_LOOKS) break;
    }
    return looks;
  }

  async #linksOf(key: string, records: Map<string, Promise<WaitRecord | undefined>>): Promise<readonly WaitLink[]> {
    // A key that cannot be read has no holders that are known, and an outage ends with the next record.
    const holders = await this.board.holders(key, MOST_HOLDERS).catch((): readonly SeenGrant[] => []);
    const links = holders.map(async ({ id, mode }) => (await this.#recordOf(instanceIdOf(id), records))?.linksOf(id, mode));
    return (await Promise.all(links)).flatMap((each) => each ?? []);
  }

  #recordOf(
    instance: string,
    records: Map<string, Promise<WaitRecord | undefined>>,
  ): Promise<WaitRecord | undefined> | WaitRecord | undefined {
    if (instance === this.instance.id) return this.#mine;
    let record = records.get(instance);
    if (record === undefined && records.size < MOST_RECORDS) {
      const onText = (text: string | null) => (text === null ? undefined : readRecord(instance, text));
      records.set(instance, (record = this.board.read(instance).then(onText, () => undefined)));
    }
    return record;
  }

  #judge({ own, callers }: Alike, looks: Looks, refused: Set<string>): void {
    const { wait, suspicion } = own;
    if (wait === undefined || own.lookedAt !== this.#beat) return;
    const linksOf = (key: string) => looks.get(key) ?? NONE;
    const beats = suspicion && beatsOf(wait, suspicion.circle, linksOf);
    if (suspicion === undefined || beats === undefined) {
      const circle = findCircle(wait, linksOf);
      own.suspicion = circle && { circle, seenAt: this.clock.now(), beats: undefined };
      return;
    }
    suspicion.beats ??= beats;
    const since = suspicion.beats;
    if (!beats.every((beat, index) => beat >= (since[index] ?? Infinity) + BEATS)) return;
    const { circle, seenAt } = suspicion;
    // One that was refused after this look is not in a circle any more.
    if (circle.some((link) => refused.has(link.wait.id))) return;
    for (const caller of callers) {
      // Of those that are alike, who had come when the circle was seen.
      if (!caller.isQueued || caller.since > seenAt) continue;
      const held = caller.grantsOfOwner(this.clock.now()).get(circle.at(-1)?.grant ?? '');
      if (held === undefined) return;
      refused.add(wait.id);
      this.#warn(caller, caller.refuseDeadlock(membersOf(held, circle)));
    }
  }

  #warn(caller: WaitingCaller, { message }: LockDeadlockError): void {
    const place = caller.subject.method ?? caller.key;
    if (this.#warnedOf.has(place) || this.#warnedOf.size === MOST_WARNINGS) return;
    this.#warnedOf.add(place);
    this.logger.warn(`${message} (Warned once for each method, or key of a call.)`);
  }
}

/** Those first of which a circle was seen, and then those that have not been looked at for longest. */
function byTurn({ own: one }: Alike, { own: other }: Alike): number {
  return Number(other.suspicion !== undefined) - Number(one.suspicion !== undefined) || one.lookedAt - other.lookedAt;
}

function setOf(grants: ReadonlyMap<string, string>) {
  return { grants: [...grants.keys()], keys: new Set(grants.values()) };
}

/** How often the processes of a circle had published when they were read; `undefined` if the circle is not there any more. */
function beatsOf(
  start: PublishedWait,
  circle: readonly WaitLink[],
  linksOf: (key: string) => readonly WaitLink[],
): readonly number[] | undefined {
  let from = start;
  const beats: number[] = [];
  for (const { grant, wait } of circle) {
    const now = linksOf(from.key).find((link) => link.grant === grant && link.wait.id === wait.id);
    if (now === undefined || !keepsOut(now, from)) return undefined;
    beats.push(now.beat);
    from = wait;
  }
  return beats;
}
/** @param held the key of the first one by which the circle is closed */
function membersOf(held: string, circle: readonly WaitLink[]): readonly DeadlockMember[] {
  const own = circle.at(-1)?.wait;
  const others = circle.slice(0, -1);
  let wanted = own?.key ?? '';
  const members: DeadlockMember[] = own ? [memberOf(own, held)] : [];
  for (const { wait } of others) {
    members.push(memberOf(wait, wanted));
    wanted = wait.key;
  }
  return members;
}

function memberOf({ instance, method, key, mode }: PublishedWait, holds: string): DeadlockMember {
  return { instance, method, holds, waitsFor: key, mode };
}
