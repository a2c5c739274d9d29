import type { Clock, Timer } from '../../api/clock.js';
import type { DeadlockMember } from '../../api/deadlock.js';
import type { LockDeadlockError } from '../../api/errors.js';
import type { LockEvent } from '../../api/lock-events.js';
import type { GrantText, SeenGrant, WaitBoard } from '../../api/lock-provider.js';
import type { LockLogger } from '../../api/logger.js';
import type { Random } from '../../api/random.js';
import { detached } from '../toolkit/detached.js';
import { findCircle, isLater, keepsOut, type PublishedWait, type WaitLink } from './circle-search.js';
import { decodeWaits, encodeWaits } from './published-waits.js';

/** A caller that waits. An interface only because callers import their provider. */
export interface WaitingCaller {
  readonly key: string;
  readonly subject: LockEvent;
  /** When it came to the queue of the key, on the monotonic clock. */
  readonly since: number;
  readonly isQueued: boolean;
  /** The keys that its owner holds beside the one that it waits for, by the id of their grants: without limited ones, for which nobody waits alone. */
  grantsOfOwner(now: number): ReadonlyMap<string, string>;
  /** The callers of this circle wait for each other, and this one is refused. Answers the error that it gets. */
  refuseDeadlock(circle: readonly DeadlockMember[]): LockDeadlockError;
}

/** A caller of this process, as far as it is published. */
interface OwnWait {
  /** From its first publication on. */
  wait: PublishedWait | undefined;
  /** A circle of which it is the victim, as it was first seen. */
  suspected: readonly WaitLink[] | undefined;
}

/** A wait is published from this age on, in ms: almost all waits are shorter, and cost nothing. */
const PUBLISHED_AFTER = 1_000;
/** How often a wait is published again, in ms. */
const BEAT = 500;
/** A text ends after so many ms without a beat. */
const KEPT = 3_000;
/**
 * A wait that was published so many times after one look was true when that look ended. The first of these may have been in flight when the text was read, the
 * second was sent after that, since each is sent after the answer to the one before; and the third one BEAT later, when a look that takes at most MOST_LOOKING
 * was over.
 */
const BEATS = 3;
const MOST_LOOKING = 450;
/** How many waits are published, the oldest first: those in a deadlock stay, and others go. */
const MOST_WAITS = 256;
/** How many keys one look reads. */
const MOST_LOOKS = 512;
/** How many waits beside one grant, such as those of a Promise.all(). */
const MOST_BESIDE = 16;
const MOST_WARNINGS = 100;

const NONE: readonly WaitLink[] = [];

/**
 * Finds callers that wait for each other in a circle, over the processes of one provider, and refuses one of them.
 *
 * Each process publishes for what those callers wait that hold other locks, and looks from its own callers along what others have published. All see the same
 * victim, the latest of the circle, and only its own process refuses it. A circle counts when two looks have seen the same grants and waits, and each of
 * these processes was alive between them: the circle then existed at one moment, and such a circle does not end by itself.
 */
export class DeadlockWatch {
  readonly #waits = new Map<WaitingCaller, OwnWait>();
  /** The grants beside which a text of this process may be, by id. */
  #written: ReadonlyMap<string, GrantText> = new Map();
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
  ) {}

  /** A caller has begun to wait under other locks. */
  watch(caller: WaitingCaller): void {
    if (this.#isStopped) return;
    this.#waits.set(caller, { wait: undefined, suspected: undefined });
    // In no caller's context: the timers that follow would keep that context alive.
    if (this.#timer === undefined && !this.#isBusy) detached(this.#wakeIn, PUBLISHED_AFTER);
  }

  stop(): void {
    this.#isStopped = true;
    this.#waits.clear();
    if (this.#timer !== undefined) this.clock.clearTimer(this.#timer);
    this.#timer = undefined;
    if (!this.#isBusy) this.#write(new Map()).catch(ignored);
  }

  readonly #wakeIn = (delay: number): void => {
    this.#timer = this.clock.setTimer(this.#onTime, Math.ceil(Math.max(0, delay)));
  };

  readonly #onTime = (): void => {
    this.#timer = undefined;
    this.#isBusy = true;
    const begunAt = this.clock.now();
    const goOn = (): void => {
      this.#isBusy = false;
      if (this.#isStopped) this.stop();
      else if (this.#waits.size > 0 || this.#written.size > 0)
        this.#wakeIn(Math.max(begunAt, this.#beatAt) + BEAT - this.clock.now());
    };
    this.#publishAndLook().then(goOn, () => {
      // Others may still see what a command has written that was not answered, and a connection may still deliver it. So nothing that they have seen counts
      // for what is published next, under new ids. An outage has its own reports.
      for (const own of this.#waits.values()) own.wait = own.suspected = undefined;
      goOn();
    });
  };

  async #publishAndLook(): Promise<void> {
    const isNew = this.#due().some(([, { wait }]) => wait === undefined);
    const since = isNew ? await this.board.serverTime() : 0;
    // One that is due since the look at the others has no time yet.
    const due = this.#due().filter(([, { wait }]) => isNew || wait !== undefined);
    this.#beat += 1;
    this.#beatAt = this.clock.now();
    for (const [caller, own] of due) own.wait ??= this.#waitOf(caller, since);
    await this.#write(this.#textsOf(due));
    if (due.length === 0) return;
    const lookedAt = this.clock.now();
    const looks = await this.#look(due);
    const isQuick = this.clock.now() - lookedAt <= MOST_LOOKING;
    for (const [caller, own] of due) this.#judge(caller, own, looks, isQuick);
  }

  /** The waits that are published now, the oldest first. Forgets callers that have left. */
  #due(): [WaitingCaller, OwnWait][] {
    const now = this.clock.now();
    const due: [WaitingCaller, OwnWait][] = [];
    for (const entry of this.#waits) {
      const [caller] = entry;
      if (!caller.isQueued) this.#waits.delete(caller);
      else if (due.length < MOST_WAITS && now - caller.since >= PUBLISHED_AFTER && caller.grantsOfOwner(now).size > 0)
        due.push(entry);
    }
    return due;
  }

  #waitOf({ key, subject: { mode, method } }: WaitingCaller, since: number): PublishedWait {
    return { id: this.random.id(), key, mode, since, instance: this.instance, method };
  }

  #textsOf(due: readonly [WaitingCaller, OwnWait][]): ReadonlyMap<string, GrantText> {
    const now = this.clock.now();
    const beside = new Map<string, { readonly key: string; readonly waits: PublishedWait[] }>();
    for (const [caller, { wait }] of due) {
      if (wait === undefined) continue;
      for (const [id, key] of caller.grantsOfOwner(now)) {
        const waits = beside.get(id)?.waits;
        if (waits === undefined) beside.set(id, { key, waits: [wait] });
        else if (waits.length < MOST_BESIDE) waits.push(wait);
      }
    }
    return new Map(
      Array.from(beside, ([id, { key, waits }]) => [id, { key, id, text: encodeWaits(this.#beat, waits) }]),
    );
  }

  /** Publishes these texts alone. */
  async #write(texts: ReadonlyMap<string, GrantText>): Promise<void> {
    const over = [...this.#written.values()].filter(({ id }) => !texts.has(id));
    if (texts.size === 0 && over.length === 0) return;
    const changes = [...over.map(({ key, id }) => ({ key, id, text: null })), ...texts.values()];
    // Unless it is answered, the earlier ones may be there as well.
    this.#written = new Map(changes.map((change) => [change.id, change]));
    await this.board.write(changes, KEPT);
    this.#written = texts;
  }

  /** What keeps these callers out and waits itself, by key, and what keeps that out, and so on. */
  async #look(due: readonly [WaitingCaller, OwnWait][]): Promise<ReadonlyMap<string, readonly WaitLink[]>> {
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
    const holders = await this.board.look(key).catch((): readonly SeenGrant[] => []);
    return holders.flatMap(({ id, mode, text }) => {
      const { beat, waits } = (text === null ? undefined : decodeWaits(text)) ?? { beat: 0, waits: [] };
      return waits.map((wait) => ({ grant: id, mode, wait, beat }));
    });
  }

  #judge(caller: WaitingCaller, own: OwnWait, looks: ReadonlyMap<string, readonly WaitLink[]>, isQuick: boolean): void {
    const { wait, suspected } = own;
    if (wait === undefined || !caller.isQueued) return;
    const linksOf = (key: string) => looks.get(key) ?? NONE;
    const beats = suspected && beatsSince(wait, suspected, linksOf);
    if (suspected === undefined || beats === undefined) {
      own.suspected = isQuick ? findCircle(wait, linksOf) : undefined;
      return;
    }
    const held = caller.grantsOfOwner(this.clock.now()).get(suspected.at(-1)?.grant ?? '');
    if (beats < BEATS || held === undefined) return;
    this.#waits.delete(caller);
    const { message } = caller.refuseDeadlock(membersOf(held, suspected));
    const place = caller.subject.method ?? caller.key;
    if (this.#warnedOf.has(place) || this.#warnedOf.size === MOST_WARNINGS) return;
    this.#warnedOf.add(place);
    this.logger.warn(`${message} (Warned once for each method, or key of a call.)`);
  }
}

/** How often the least active of a circle has published since it was seen; `undefined` if the circle is not there any more. */
function beatsSince(
  start: PublishedWait,
  circle: readonly WaitLink[],
  linksOf: (key: string) => readonly WaitLink[],
): number | undefined {
  let from = start;
  let least = Infinity;
  for (const { grant, wait, beat } of circle) {
    const now = linksOf(from.key).find((link) => link.grant === grant && link.wait.id === wait.id);
    if (now === undefined || !keepsOut(now, from)) return undefined;
    least = Math.min(least, now.beat - beat);
    from = wait;
  }
  return least;
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

function ignored(): void {
  // The text ends by itself.
}
