import { type AcquireRequest, type Grant, type ProviderEvent } from '../../api/lock-provider.js';
import { type Clock, type Timer } from '../../api/clock.js';
import { HolderTable } from '../../core/toolkit/holder-table.js';
import { Cohort } from './cohort.js';
import type { KeyLayout } from './key-layout.js';
import { type Notice, type QueuedReply, readNotice, readRetained } from './operation.js';
import { Departure, type DepartingWaiter } from './release.js';
import type { Servers } from './servers.js';
import { Waiter, type WaiterSurroundings } from './waiter.js';

/** What the waiting room needs around it. */
export interface WaitingRoomSurroundings {
  readonly clock: Clock;
  readonly servers: Servers;
  readonly layout: KeyLayout;
  readonly confirmsAll: boolean;
  emit(event: ProviderEvent): void;
  unavailable(key: string, cause: unknown, sent: boolean): Error;
}

const NOBODY: readonly Waiter[] = [];

/** How often a process asks again for the first waiter of each lock, in ms: well inside the 3 s after which it counts as dead. */
const ASK_AGAIN = 1_000;

/** When to ask again for a lock that frees itself. */
interface Wake {
  readonly timer: Timer;
  /** On the monotonic clock. */
  readonly at: number;
  /** The first in the queue that is known. */
  waiter: Waiter;
}

/** All attempts of this process that wait, and those that leave. */
export class WaitingRoom {
  /** By holder. An attempt whose outcome is unknown stays until it is asked for again or released. */
  readonly #waiters = new HolderTable<Waiter>();
  /** Those that were granted after they were queued, until their release: the server may still name them in a message. */
  readonly #granted = new HolderTable<true>();
  /** By lock. */
  readonly #wakes = new Map<string, Wake>();
  /** The locks for which all waiters were asked in this second: each of them may find that it was missing. */
  readonly #recalled = new Set<string>();
  /** Those that were granted by a message while they asked again: their release has to leave the queue as well. */
  readonly #strays = new Map<string, Waiter>();
  /** By the holder that has the lock, or is about to. */
  readonly #cohorts = new HolderTable<Cohort>();
  readonly #departures = new Set<Departure>();
  readonly #surroundings: WaiterSurroundings;
  #timer: Timer | undefined;

  constructor(private readonly around: WaitingRoomSurroundings) {
    this.#surroundings = {
      clock: around.clock,
      confirmsAll: around.confirmsAll,
      add: (operation) => {
        around.servers.add(operation);
      },
      confirm: (operation, lease) => {
        around.servers.confirm(operation, lease);
      },
      clockOf: (lock) => around.servers.clockOf(lock),
      emit: (event) => {
        around.emit(event);
      },
      onCohortOver: ({ request }) => {
        this.#abandonCohort(request.holder);
      },
      onMessageMissed: (lock) => {
        around.servers.probe(lock);
        this.#recall(lock);
      },
      onQueueLost: (lock) => {
        this.#recall(lock);
      },
      unavailable: (key, cause, sent) => around.unavailable(key, cause, sent),
      onQueued: (waiter, reply) => {
        this.#onQueued(waiter, reply);
      },
      onSettled: (waiter) => {
        const { holder } = waiter.request;
        if (waiter.state !== 'settled') return;
        this.#waiters.delete(holder);
        if (waiter.isGranted && waiter.mayBeQueued) this.#granted.set(holder, true);
        if (waiter.isStray) this.#strays.set(holder, waiter);
      },
      onAbort: (waiter) => {
        this.#onAbort(waiter);
      },
    };
  }

  enter(request: AcquireRequest): Promise<Grant | 'busy'> {
    const { layout } = this.around;
    const known = this.#waiters.get(request.holder);
    const isKnown = known !== undefined && !known.isUnsent;
    // It had its turn and could not use it. Nothing of that is certain any more.
    this.#abandonCohort(request.holder);
    const waiter = new Waiter(request, layout.lockOf(request.key), this.#surroundings, isKnown);
    // Before it is sent: a message about the grant may overtake the reply.
    this.#waiters.set(request.holder, waiter);
    waiter.ask();
    return waiter.answer;
  }

  /**
   * Passes the lock that this holder releases on to the next of its cohort. Answers whether that was done: otherwise it is
   * released on the server.
   */
  passOn(holder: string): boolean {
    const cohort = this.#cohorts.get(holder);
    // Whose caller has left before the lock was confirmed passes nothing on.
    if (!cohort || this.#waiters.has(holder)) return false;
    const { servers, clock } = this.around;
    const next = servers.isReachable(cohort.first.lock) ? cohort.next(clock.now()) : undefined;
    if (!next) return false;
    this.#cohorts.delete(holder);
    this.#cohorts.set(next.waiter.request.holder, cohort);
    this.#granted.delete(holder);
    // The release of the last one takes it out of the queue.
    this.#strays.delete(holder);
    next.waiter.onTurn(next.token);
    return true;
  }

  /** The cohort from which this holder has its lock. */
  cohortOf(holder: string): Cohort | undefined {
    return this.#cohorts.get(holder);
  }

  /**
   * The attempt is over. Answers what is to be released: those who had the lock with it, beginning with the one under whose
   * name the server knows it; or its own waiter, if that may stand in the queue.
   */
  dismiss(holder: string): readonly Waiter[] {
    this.#granted.delete(holder);
    const waiter = this.#waiters.get(holder) ?? this.#strays.get(holder);
    if (waiter) {
      if (!waiter.isOver) waiter.settle('busy');
      this.#waiters.delete(holder);
      this.#strays.delete(holder);
    }
    return this.#endCohort(holder)?.served ?? (waiter ? [waiter] : NOBODY);
  }

  onNotice(text: string, sentAt: number | undefined): void {
    const retained = readRetained(text);
    if (retained) {
      const waiter = this.#firstOf(retained.lock);
      if (waiter) this.#wakeWhenFree(waiter, retained.freeIn);
      return;
    }
    const notice = readNotice(text);
    // Whatever else is published on our channel is not for us.
    if (!notice) return;
    const [first = '', ...others] = notice.holders;
    for (const holder of notice.holders) if (!this.#isAlive(holder)) this.#leaveUnknown(holder, notice);
    const waiter = this.#waiters.get(first);
    // Answered already: a message may come after the ask that found the grant.
    if (!waiter || waiter.isOver) return;
    waiter.leaveCohort();
    if (others.length > 0) this.#form(waiter, others, notice);
    waiter.onNotice(notice, sentAt);
  }

  /**
   * Asks for all that wait, for this lock or for any: when something may have been missed. In the order in which they came: where the
   * queue was lost, the first that asks has the lock.
   */
  askAgain(lock?: string): void {
    const waiters = this.#waiters.values().filter((waiter) => lock === undefined || waiter.lock === lock);
    for (const waiter of waiters.sort(byTicket)) waiter.ask();
  }

  /** Sends again what was lost with the connection. Called after the holds were renewed. */
  onRecovered(): void {
    for (const cohort of this.#cohorts.values()) cohort.dissolve();
    for (const departure of this.#departures) departure.send();
    this.askAgain();
  }

  /** The provider stops: nobody is left waiting. */
  close(cause: unknown): void {
    if (this.#timer !== undefined) this.around.clock.clearTimer(this.#timer);
    for (const { timer } of this.#wakes.values()) this.around.clock.clearTimer(timer);
    this.#wakes.clear();
    this.#granted.clear();
    for (const waiter of this.#waiters.values()) if (!waiter.isOver) waiter.fail(cause);
    this.#waiters.clear();
    this.#strays.clear();
    this.#cohorts.clear();
    this.#departures.clear();
  }

  /** Leaves the queue in the background, sent again until it is acknowledged. */
  leave(waiter: DepartingWaiter): void {
    const departure = new Departure(waiter, this.around.clock, this.around.servers, () => {
      this.#departures.delete(departure);
    });
    this.#departures.add(departure);
    departure.send();
    this.#wakeLater();
  }

  #form(first: Waiter, others: readonly string[], { token }: Notice): void {
    const cohort = new Cohort(first, token);
    this.#cohorts.set(cohort.name, cohort);
    others.forEach((holder, index) => {
      const waiter = this.#waiters.get(holder);
      if (!waiter || waiter.isOver) return;
      waiter.leaveCohort();
      cohort.add(waiter, token + BigInt(index + 1));
    });
  }

  #endCohort(holder: string): Cohort | undefined {
    const cohort = this.#cohorts.get(holder);
    if (cohort) {
      this.#cohorts.delete(holder);
      cohort.dissolve();
    }
    return cohort;
  }

  /** The lock that this holder has with its cohort is not what it was: what the server may know of the others ends. */
  #abandonCohort(holder: string): void {
    for (const member of this.#endCohort(holder)?.served ?? NOBODY)
      if (member.request.holder !== holder) this.leave(member);
  }

  #onAbort(waiter: Waiter): void {
    this.#abandonCohort(waiter.request.holder);
    if (this.around.servers.isReachable(waiter.lock)) waiter.settle('busy');
    else {
      waiter.fail(new Error('The connection was lost while it waited.'));
      this.#waiters.delete(waiter.request.holder);
    }
    this.leave(waiter);
  }

  #onQueued(waiter: Waiter, { freeIn, wasMissing }: QueuedReply): void {
    this.#wakeLater();
    // The others were asked for by it alone, so they may be missing as well.
    if (wasMissing) this.#recall(waiter.lock);
    if (freeIn < ASK_AGAIN) this.#wakeWhenFree(waiter, freeIn);
  }

  /** One ask for a lock that frees itself is enough: every ask serves the queue. */
  #wakeWhenFree(waiter: Waiter, freeIn: number): void {
    const { lock } = waiter;
    const known = this.#wakes.get(lock);
    if (known && this.around.clock.now() + freeIn < known.at) {
      this.around.clock.clearTimer(known.timer);
      this.#wakes.delete(lock);
    } else if (known) {
      if (byTicket(waiter, known.waiter) < 0) known.waiter = waiter;
      return;
    }
    // A key that ends in 0 ms is there until the next one.
    const timer = this.around.clock.setTimer(() => {
      this.#wakes.delete(lock);
      const next = wake.waiter.isOver ? this.#firstOf(lock) : wake.waiter;
      next?.ask();
    }, freeIn + 1);
    const wake: Wake = { timer, waiter, at: this.around.clock.now() + freeIn };
    this.#wakes.set(lock, wake);
  }

  /** Asks for all that wait for this lock, once a second at most. */
  #recall(lock: string): void {
    if (this.#recalled.has(lock)) return;
    this.#recalled.add(lock);
    this.askAgain(lock);
  }

  #firstOf(lock: string): Waiter | undefined {
    let first: Waiter | undefined;
    for (const waiter of this.#waiters.values()) {
      if (waiter.lock !== lock || waiter.state !== 'queued') continue;
      if (!first || byTicket(waiter, first) < 0) first = waiter;
    }
    return first;
  }

  /**
   * Asks for the first of each lock, which shows that this process lives and finds a grant whose message was lost: grants go in the order
   * of the queue. So a check costs the server one operation a lock, also if 10 000 wait for it.
   */
  #askForTheFirst(): void {
    const first = new Map<string, Waiter>();
    for (const waiter of this.#waiters.values()) {
      if (waiter.isUnconfirmed) waiter.ask();
      const known = first.get(waiter.lock);
      if (waiter.state === 'queued' && (!known || byTicket(waiter, known) < 0)) first.set(waiter.lock, waiter);
    }
    for (const waiter of [...first.values()].sort(byTicket)) waiter.ask();
  }

  /** Whether an attempt of this process waits for, confirms or holds what it was granted. */
  #isAlive(holder: string): boolean {
    if (this.#waiters.has(holder) || this.#granted.has(holder)) return true;
    return this.#cohorts.values().some(({ served }) => served.some(({ request }) => request.holder === holder));
  }

  /**
   * The server has granted to an attempt that is over here: it had served it before, and has remembered it again since, from a snapshot
   * or a replica that lagged. Unanswered, each such grant would keep the others out for as long as it is provisional.
   */
  #leaveUnknown(holder: string, { lock, claim }: Notice): void {
    this.leave({ lock, claim, request: { key: '', holder, mode: 'exclusive', lease: Number(claim) } });
  }

  #wakeLater(): void {
    this.#timer ??= this.around.clock.setTimer(() => {
      this.#timer = undefined;
      this.#recalled.clear();
      this.#askForTheFirst();
      for (const departure of this.#departures) departure.send();
      if (this.#waiters.size + this.#departures.size > 0) this.#wakeLater();
    }, ASK_AGAIN);
  }
}

function byTicket(one: Waiter, other: Waiter): number {
  return one.ticket < other.ticket ? -1 : 1;
}
