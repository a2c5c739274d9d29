import type { AcquireRequest, Clock, Grant, ProviderEvent, Timer } from '../../engine/lock-provider.js';
import type { KeyLayout } from './key-layout.js';
import { readNotice } from './operation.js';
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

/** How often a process with waiters asks again for all of them, in ms: well inside the 3 s after which it counts as dead. */
const ASK_AGAIN = 1_000;

/** All attempts of this process that wait, and those that leave. */
export class WaitingRoom {
  /** By holder. An attempt whose outcome is unknown stays until it is asked for again or released. */
  readonly #waiters = new Map<string, Waiter>();
  /** Those that were granted by a message while they asked again: their release has to leave the queue as well. */
  readonly #strays = new Map<string, Waiter>();
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
    const waiter = new Waiter(request, layout.lockOf(request.key), this.#surroundings, isKnown);
    // Before it is sent: a message about the grant may overtake the reply.
    this.#waiters.set(request.holder, waiter);
    waiter.ask();
    return waiter.answer;
  }

  /** The attempt is over; answers its waiter if that may stand in the queue. */
  dismiss(holder: string): Waiter | undefined {
    const waiter = this.#waiters.get(holder) ?? this.#strays.get(holder);
    if (waiter && !waiter.isOver) waiter.settle('busy');
    this.#waiters.delete(holder);
    this.#strays.delete(holder);
    return waiter;
  }

  onNotice(text: string, sentAt: number | undefined): void {
    const notice = readNotice(text);
    // Whatever else is published on our channel is not for us.
    if (!notice) return;
    // An unknown holder was answered already (a message may come after the ask that found the grant), or has left: then its departure
    // has released it or will, since it is sent until it is acknowledged.
    this.#waiters.get(notice.holder)?.onNotice(notice, sentAt);
  }

  /** Asks for all that wait: each second, and when something may have been missed. */
  askAgain(): void {
    for (const waiter of this.#waiters.values()) waiter.ask();
  }

  /** Sends again what was lost with the connection. Called after the holds were renewed. */
  onRecovered(): void {
    for (const departure of this.#departures) departure.send();
    this.askAgain();
  }

  /** The provider stops: nobody is left waiting. */
  close(cause: unknown): void {
    if (this.#timer !== undefined) this.around.clock.clearTimer(this.#timer);
    for (const waiter of this.#waiters.values()) if (!waiter.isOver) waiter.fail(cause);
    this.#waiters.clear();
    this.#strays.clear();
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

  #onAbort(waiter: Waiter): void {
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
      for (const waiter of this.#waiters.values()) waiter.ask();
      for (const departure of this.#departures) departure.send();
      if (this.#waiters.size + this.#departures.size > 0) this.#wakeLater();
    }, ASK_AGAIN);
  }
}
