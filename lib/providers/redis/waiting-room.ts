import {
  type AcquireRequest,
  type Clock,
  type Grant,
  HolderTable,
  type ProviderEvent,
  type Timer,
} from '../../engine/lock-provider.js';
import { Cohort } from './cohort.js';
import type { KeyLayout } from './key-layout.js';
import { type Notice, readNotice } from './operation.js';
import { Departure } from './release.js';
import type { Servers } from './servers.js';
import { Waiter, type WaiterSurroundings } from './waiter.js';

/** What the waiting room needs around it. */
export interface WaitingRoomSurroundings {
  readonly clock: Clock;
  readonly servers: Servers;
  readonly layout: KeyLayout;
  readonly confirmsAll: boolean;
  emit(event: ProviderEvent): void;
  unavailable(key: string, cause: unknown): Error;
}

const NOBODY: readonly Waiter[] = [];

/** How often a process with waiters asks again for all of them, in ms: well inside the 3 s after which it counts as dead. */
const ASK_AGAIN = 1_000;

/** All attempts of this process that wait, and those that leave. */
export class WaitingRoom {
  /** By holder. An attempt whose outcome is unknown stays until it is asked for again or released. */
  readonly #waiters = new HolderTable<Waiter>();
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
      },
      unavailable: (key, cause) => around.unavailable(key, cause),
      onQueued: () => {
        this.#wakeLater();
      },
      onSettled: (waiter) => {
        if (waiter.state !== 'settled') return;
        this.#waiters.delete(waiter.request.holder);
        if (waiter.isStray) this.#strays.set(waiter.request.holder, waiter);
      },
      onAbort: (waiter) => {
        this.#onAbort(waiter);
      },
    };
  }

  enter(request: AcquireRequest): Promise<Grant | 'busy'> {
    const { layout } = this.around;
    const isKnown = this.#waiters.has(request.holder);
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
    const waiter = this.#waiters.get(holder) ?? this.#strays.get(holder);
    if (waiter) {
      if (!waiter.isOver) waiter.settle('busy');
      this.#waiters.delete(holder);
      this.#strays.delete(holder);
    }
    return this.#endCohort(holder)?.served ?? (waiter ? [waiter] : NOBODY);
  }

  onNotice(text: string, sentAt: number | undefined): void {
    const notice = readNotice(text);
    // Whatever else is published on our channel is not for us.
    if (!notice) return;
    const [first = '', ...others] = notice.holders;
    const waiter = this.#waiters.get(first);
    // An unknown holder was answered already (a message may come after the ask that found the grant), or has left: then its departure
    // has released it or will, since it is sent until it is acknowledged.
    if (!waiter || waiter.isOver) return;
    waiter.leaveCohort();
    if (others.length > 0) this.#form(waiter, others, notice);
    waiter.onNotice(notice, sentAt);
  }

  /** Asks for all that wait: each second, and when something may have been missed. */
  askAgain(): void {
    // In the order in which they came: where the queue was lost, whoever asks first has the lock.
    for (const waiter of this.#waiters.values().sort(byTicket)) waiter.ask();
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
    for (const waiter of this.#waiters.values()) if (!waiter.isOver) waiter.fail(cause);
    this.#waiters.clear();
    this.#strays.clear();
    this.#cohorts.clear();
    this.#departures.clear();
  }

  /** Leaves the queue in the background, sent again until it is acknowledged. */
  leave(waiter: Pick<Waiter, 'request' | 'lock' | 'claim'>): void {
    const departure = new Departure(
      waiter,
      this.around.clock,
      (operation) => {
        this.around.servers.add(operation);
      },
      () => {
        this.#departures.delete(departure);
      },
    );
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

  #wakeLater(): void {
    this.#timer ??= this.around.clock.setTimer(() => {
      this.#timer = undefined;
      this.askAgain();
      for (const departure of this.#departures) departure.send();
      if (this.#waiters.size + this.#departures.size > 0) this.#wakeLater();
    }, ASK_AGAIN);
  }
}

function byTicket(one: Waiter, other: Waiter): number {
  return one.ticket < other.ticket ? -1 : 1;
}
