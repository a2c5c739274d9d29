import type { Clock, Timer } from '../../api/clock.js';
import type { DeadlockMember } from '../../api/deadlock.js';
import type { GrantText, SeenGrant, WaitBoard } from '../../api/lock-provider.js';
import type { LockLogger } from '../../api/logger.js';
import type { Random } from '../../api/random.js';
import { detached } from '../toolkit/detached.js';
import type { Waiter } from '../acquire/waiter.js';
import { findCycle, isLater, keepsOut, type PublishedWait, type WaitLink } from './cycle-search.js';
import { decodeWaits, encodeWaits } from './published-waits.js';

/** A cycle of which a caller of this process is the victim. */
interface Suspicion {
  /** As it was first seen. */
  readonly cycle: readonly WaitLink[];
  /** So often all of it has to be published again, before it counts. */
  readonly beats: number;
}

/** A caller of this process, as far as it is published. */
interface OwnWait {
  /** From its first publication on. */
  wait: PublishedWait | undefined;
  /** The grants beside which it was published last. */
  beside: readonly { readonly id: string; readonly key: string }[];
  suspicion: Suspicion | undefined;
}

/** The waits that are published beside a grant of this key. */
interface Beside {
  readonly key: string;
  readonly waits: PublishedWait[];
}

/** A wait is published from this age on, in ms: almost all waits are shorter, and cost nothing. */
const PUBLISHED_AFTER = 1_000;
/** How often a wait is published again, in ms. */
const BEAT = 500;
/** A text ends after so many ms without a beat. */
const KEPT = 3_000;
/**
 * A wait that was published so many times after one look was true when that look ended, if the look took less than LOOK. The first of these may have been in
 * flight when the text was read, the second was sent after that, since each is sent after the answer to the one before, and the third one BEAT later. A look
 * that takes longer needs one more for each LOOK.
 */
const BEATS = 3;
const LOOK = 450;
/** How many waits are published, the oldest first: those in a deadlock stay, and others go. */
const MOST_WAITS = 256;
/** How many keys one look reads. */
const MOST_LOOKS = 128;
/** How many holders of a key one look reads. */
const MOST_HOLDERS = 64;
const MOST_WARNINGS = 100;

type Looks = ReadonlyMap<string, readonly WaitLink[]>;

const NONE: readonly WaitLink[] = [];
const NOTHING: ReadonlySet<string> = new Set();

/**
 * Finds callers that wait for each other in a cycle, over the processes of one provider, and refuses one of them.
 *
 * Each process publishes for what those callers wait that hold other locks, and looks from its own callers along what others have published. All see the same
 * victim, the latest of the cycle, and only its own process refuses it. A cycle counts when two looks have seen the same grants and waits, and each of
 * these processes was alive between them: the cycle then existed at one moment. Such a cycle ends only when a caller gives up or a lock is lost, and a wait that
 * ends is removed at once.
 */
export class DeadlockWatch {
  readonly #waits = new Map<Waiter, OwnWait>();
  /** The keys of the grants beside which this process has a text, by the ids of these. */
  readonly #written = new Map<string, string>();
  /** The last write, and those before it. */
  #writing: Promise<unknown> = Promise.resolve();
  #beat = 0;
  /** When it was last published, on the monotonic clock. */
  #beatAt = -Infinity;
  #timer: Timer | undefined;
  #isBusy = false;
  #isStopped = false;
  readonly #warnedOf = new Set<string>();

  constructor(
    private readonly board: WaitBoard,
    private readonly clock: Clock,
    private readonly random: Random,
    private readonly logger: LockLogger,
    private readonly instance: string,
    /** Sends a caller away that is in this cycle. Answers the error that it gets. */
    private readonly refuse: (caller: Waiter, cycle: readonly DeadlockMember[]) => Error,
  ) {}

  /** A caller has begun to wait under other locks. */
  watch(caller: Waiter): void {
    if (this.#isStopped) return;
    this.#waits.set(caller, { wait: undefined, beside: [], suspicion: undefined });
    // In no caller's context: the timers that follow would keep that context alive.
    if (this.#timer === undefined && !this.#isBusy) detached(this.#wakeIn, PUBLISHED_AFTER);
  }

  /** The caller waits no more. Its wait is removed from the board at once, because others would still count it. */
  forget(caller: Waiter): void {
    const own = this.#waits.get(caller);
    if (own === undefined) return;
    this.#waits.delete(caller);
    if (own.beside.length === 0) return;
    const beside = this.#besideGrants(this.#waits.values());
    // Without a new beat: that says that half a second has passed.
    void detached(this.#write, new Map(own.beside.map(({ id }) => [id, beside.get(id)])));
  }

  stop(): void {
    this.#isStopped = true;
    this.#waits.clear();
    if (this.#timer !== undefined) this.clock.clearTimer(this.#timer);
    this.#timer = undefined;
    void this.#publish(new Map());
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
      else if (this.#waits.size > 0) this.#wakeIn(Math.max(begunAt, this.#beatAt) + BEAT - this.clock.now());
    });
  };

  async #publishAndLook(): Promise<void> {
    const isNew = this.#due().some(([, { wait }]) => wait === undefined);
    // Without it, callers that are not published yet stay so. An outage has its own reports.
    const since = isNew ? await this.board.serverTime().catch(() => undefined) : undefined;
    const due = this.#due();
    this.#beat += 1;
    this.#beatAt = this.clock.now();
    if (since !== undefined) for (const [caller, own] of due) own.wait ??= this.#waitOf(caller, since);
    for (const [caller, own] of due) {
      const grants = own.wait === undefined ? [] : grantsOfOwner(caller, this.#beatAt);
      own.beside = Array.from(grants, ([id, key]) => ({ id, key }));
    }
    const failed = await this.#publish(this.#besideGrants(due.map(([, own]) => own)));
    for (const [, own] of due) {
      // Others may still see what a command has written that was not answered, and a connection may still deliver it. So nothing that they have seen counts
      // for what is published next, under a new id.
      if (own.beside.some(({ id }) => failed.has(id))) own.wait = own.suspicion = undefined;
    }
    const published = due.filter(([caller, { wait }]) => wait !== undefined && caller.isQueued);
    if (published.length === 0) return;
    const lookedAt = this.clock.now();
    const looks = await this.#look(published);
    const beats = BEATS + Math.floor((this.clock.now() - lookedAt) / LOOK);
    const refused = new Set<string>();
    for (const [caller, own] of published) this.#judge(caller, own, { looks, beats, refused });
  }

  /** The waits that are published now, the oldest first. Forgets callers that have left. */
  #due(): [Waiter, OwnWait][] {
    const now = this.clock.now();
    const due: [Waiter, OwnWait][] = [];
    for (const entry of this.#waits) {
      const [caller] = entry;
      if (!caller.isQueued) this.#waits.delete(caller);
      else if (due.length < MOST_WAITS && now - caller.since >= PUBLISHED_AFTER && grantsOfOwner(caller, now).size > 0)
        due.push(entry);
    }
    return due;
  }

  #waitOf({ key, subject: { mode, method } }: Waiter, since: number): PublishedWait {
    return { id: this.random.id(), key, mode, since, instance: this.instance, method };
  }

  #besideGrants(published: Iterable<OwnWait>): ReadonlyMap<string, Beside> {
    const all = new Map<string, Beside>();
    for (const { wait, beside } of published) {
      if (wait === undefined) continue;
      for (const { id, key } of beside) {
        const there = all.get(id);
        if (there) there.waits.push(wait);
        else all.set(id, { key, waits: [wait] });
      }
    }
    return all;
  }

  /** Publishes these waits alone. Answers the ids of the grants beside which they may not be written. */
  #publish(beside: ReadonlyMap<string, Beside>): Promise<ReadonlySet<string>> {
    const changes = new Map<string, Beside | undefined>(beside);
    for (const id of this.#written.keys()) if (!beside.has(id)) changes.set(id, undefined);
    return this.#write(changes);
  }

  /** Puts these waits beside the grants with these ids, or removes what is there, behind the writes before. */
  readonly #write = (changes: ReadonlyMap<string, Beside | undefined>): Promise<ReadonlySet<string>> => {
    const texts: GrantText[] = [];
    for (const [id, beside] of changes) {
      const key = beside?.key ?? this.#written.get(id);
      if (key === undefined) continue;
      texts.push({ key, id, text: beside ? encodeWaits(this.#beat, beside.waits) : null });
      // A text that is not removed ends by itself, and its beat stands still.
      if (beside) this.#written.set(id, key);
      else this.#written.delete(id);
    }
    if (texts.length === 0) return Promise.resolve(NOTHING);
    const written = this.#writing.then(() => this.board.write(texts, KEPT));
    const failed = written.then(
      (ids) => new Set(ids),
      () => new Set(texts.map(({ id }) => id)),
    );
    this.#writing = failed;
    return failed;
  };

  /** By key: the holders that keep these callers out and wait themselves, those that keep these out, and so on. */
  async #look(due: readonly [Waiter, OwnWait][]): Promise<Looks> {
    const looks = new Map<string, readonly WaitLink[]>();
    const own = due.flatMap(([, { wait }]) => wait ?? []);
    const latest = own.reduce((one, other) => (isLater(one, other) ? one : other));
    let keys = new Set(own.map(({ key }) => key));
    while (keys.size > 0) {
      const next = [...keys].slice(0, MOST_LOOKS - looks.size);
      const found = await Promise.all(next.map((key) => this.#linksOf(key)));
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

  async #linksOf(key: string): Promise<readonly WaitLink[]> {
    // A key that cannot be read has no holders that are known, and an outage ends with the next write.
    const holders = await this.board.look(key, MOST_HOLDERS).catch((): readonly SeenGrant[] => []);
    return holders.flatMap(({ id, mode, text }) => {
      const { beat, waits } = (text === null ? undefined : decodeWaits(text)) ?? { beat: 0, waits: [] };
      return waits.map((wait) => ({ grant: id, mode, wait, beat }));
    });
  }

  #judge(
    caller: Waiter,
    own: OwnWait,
    { looks, beats, refused }: { readonly looks: Looks; readonly beats: number; readonly refused: Set<string> },
  ): void {
    const { wait, suspicion } = own;
    if (wait === undefined || !caller.isQueued) return;
    const linksOf = (key: string) => looks.get(key) ?? NONE;
    const seen = suspicion && beatsSince(wait, suspicion.cycle, linksOf);
    if (suspicion === undefined || seen === undefined) {
      const cycle = findCycle(wait, linksOf);
      own.suspicion = cycle && { cycle, beats };
      return;
    }
    const { cycle } = suspicion;
    const held = grantsOfOwner(caller, this.clock.now()).get(cycle.at(-1)?.grant ?? '');
    if (seen < suspicion.beats || held === undefined) return;
    // One that was refused after this look is not in a cycle any more.
    if (cycle.some((link) => refused.has(link.wait.id))) return;
    refused.add(wait.id);
    const { message } = this.refuse(caller, membersOf(held, cycle));
    const place = caller.subject.method ?? caller.key;
    if (this.#warnedOf.has(place) || this.#warnedOf.size === MOST_WARNINGS) return;
    this.#warnedOf.add(place);
    this.logger.warn(`${message} (Warned once for each method, or key of a call.)`);
  }
}

/** The keys that its owner holds beside the one that it waits for, by the ids of their grants: without limited ones, for which nobody waits alone. */
function grantsOfOwner({ key, provider, meanwhile }: Waiter, now: number): ReadonlyMap<string, string> {
  const grants = new Map<string, string>();
  if (meanwhile === undefined) return grants;
  const around = meanwhile.outer.flatMap((lock) => (lock.isOpen && lock.provider === provider ? lock.holds : []));
  for (const hold of [...meanwhile.acquired, ...around]) {
    if (hold.key === key || hold.terms.limited !== undefined || !hold.isValid(now)) continue;
    grants.set(hold.grant.request.id, hold.key);
  }
  return grants;
}

/** How often the least active of a cycle has published since it was seen; `undefined` if the cycle is not there any more. */
function beatsSince(
  start: PublishedWait,
  cycle: readonly WaitLink[],
  linksOf: (key: string) => readonly WaitLink[],
): number | undefined {
  let from = start;
  let least = Infinity;
  for (const { grant, wait, beat } of cycle) {
    const now = linksOf(from.key).find((link) => link.grant === grant && link.wait.id === wait.id);
    if (now === undefined || !keepsOut(now, from)) return undefined;
    least = Math.min(least, now.beat - beat);
    from = wait;
  }
  return least;
}

/** @param held the key of the first one by which the cycle is closed */
function membersOf(held: string, cycle: readonly WaitLink[]): readonly DeadlockMember[] {
  const own = cycle.at(-1)?.wait;
  const others = cycle.slice(0, -1);
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
