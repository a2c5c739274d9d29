import type { Clock } from './clock.js';
import type { LockError } from './errors.js';
import type { FailoverState } from './failover-state.js';
import type { LockInfo } from './lock-info.js';
import type { LimitShare, LockMode } from './lock-mode.js';
import type { LockLogger } from './logger.js';
import type { PurgeOptions } from './purge-options.js';
import type { Random } from './random.js';

/*
 * The seam between the core and a backend. An implementation is proved by the conformance kit,
 * `nestjs-distributed-lock/provider-kit`.
 *
 * The division of work: a backend knows its protocol, and nothing of timeouts, re-entry, watchdogs or several keys. The core calls
 * `acquire`, `renew` and `release`, and computes validity from the answers.
 */

/**
 * A provider as users pass it to the module: options that were validated and stored. It opens nothing and keeps no state of an application, so
 * one provider serves any number of applications, one after the other or at the same time.
 */
export interface LockProvider {
  /** The names of the providers that it is built on. Default: none. */
  readonly members?: readonly string[];

  /**
   * Makes the backend of one application, with a process id of its own. No I/O yet: {@link LockBackend.connect} opens.
   *
   * @throws LockConfigError for members that it cannot be built on
   */
  createBackend(context: BackendContext): LockBackend;
}

/** An application among those that share the locks of a namespace. */
export interface Instance {
  /** 12 hexadecimal digits. Each id of the application's `random`, and so of each of its requests, begins with them. */
  readonly id: string;
  /** The module option `instance`, for people. */
  readonly name: string;
}

/** The parts that the core gives to a backend. */
export interface BackendContext {
  /** The name under which the provider is registered, for messages. */
  readonly name: string;
  /** The prefix of every key: `[A-Za-z0-9_.-]`, 1 to 64 characters. */
  readonly namespace: string;
  readonly instance: Instance;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: LockLogger;
  /** Reports what happened without a call. The core has handled it when this returns. */
  emit(event: BackendEvent): void;
  /**
   * Whether it only shows and frees the locks of others, for an operator, and never acquires one: then `connect` writes nothing that stays on
   * the server. Default false.
   */
  readonly isObserver?: boolean;
  /** The backend of one of {@link LockProvider.members}. It is connected before this one, and closed after it. */
  member(name: string): Member;
}

/**
 * A provider at work, in one application.
 *
 * `State` is the type of what it keeps of each request, in {@link AcquireRequest.state}. A backend that keeps nothing leaves it out.
 *
 * The contract:
 * - **The request is the handle.** Every operation names it, and is idempotent: an `acquire` repeated after a lost reply finds its own
 *   hold, with the same token. At most one `acquire` of a request is in flight. The core never asks again for a request after it has
 *   called `release` for it; an `acquire` of it that is still in flight must then not be left holding.
 * - **Three outcomes.** Held, busy, and unknown: what was sent and not answered is unknown and never reported as busy.
 * - **No answer takes forever**: `renew` and `release` settle within a bounded time even when the server is gone.
 */
export interface LockBackend<State = unknown> {
  /** The abilities of this backend. The kit fails a capability that is claimed and not observed. */
  readonly capabilities: LockCapabilities;

  /**
   * How long its server may be silent, in ms, before the connection counts as dead and a new one is made; 0 for a backend that watches its
   * connection also while it is idle. Declare it if the backend connects again by itself: a caller with `wait: 0` then has this time and 1 s
   * for an answer, and a request that was not answered is sent again meanwhile. Default: such a caller waits 1 s, and gets the first failure.
   */
  readonly commandTimeout?: number | undefined;

  /**
   * Its locks exist in this process alone and end with it, so a lock that is held does not keep the process alive. Default false: a holder
   * has no open socket while its server is away, and must not end because of that.
   */
  readonly locksEndWithProcess?: boolean;

  /**
   * Connects. Called once, before anything else.
   *
   * @throws LockUnavailableError if the first attempt fails; the backend must then keep reconnecting by itself, for
   * applications that start without it (`failFast: false`).
   */
  connect(): Promise<void>;

  /**
   * Asks for a lock. With `request.wait` 0 it answers immediately; otherwise it may queue until `request.signal` aborts. The
   * core aborts it when nobody is left to serve, so a backend needs no timer for that.
   *
   * - A {@link Grant} when it is held.
   * - `'busy'` when somebody else has it and the wait is over or the signal aborted. Then the request is in no queue any more. After an
   *   abort the answer comes immediately, while the server is notified in the background.
   * - `'not-asked'` to a request with `after`, when that was not granted. Then nothing of the request is left on the server.
   *
   * @throws LockUnavailableError when the outcome is unknown or the server is down. The core asks again for the same request, or gives up
   * and calls `release` for it. `sent: false` reports that nothing of the request, in any call of it, can have reached a server.
   */
  acquire(request: AcquireRequest<State>): Promise<Grant | 'busy' | 'not-asked'>;

  /**
   * Whether a request for the key `next` may name one for `key` in {@link AcquireRequest.after}. The core calls `acquire` for both in one tick, so the
   * backend can send them together. Default: never, and several keys of one lock are asked for one after the other.
   */
  chains?(key: string, next: string): boolean;

  /**
   * For how many ms a question about a request that waits has been unanswered, such as a repeated ask or a look: a caller whose wait ends is
   * then not refused as busy. `Infinity` while a grant is being confirmed, and if it throws. 0 while no question is in flight. Not needed by a
   * backend that is notified of each change of a key and cannot fall silent.
   */
  unansweredFor?(request: AcquireRequest<State>): number;

  /**
   * The holder of the key that keeps this request out, as the backend last saw it for this request; `null` if it saw none. Asked when a caller begins
   * to wait, is granted after that, or is refused as busy, also after `acquire` has answered. The answer comes from memory and changes nothing: an error
   * never waits for it. Default, and if it throws: not known.
   */
  heldBy?(request: AcquireRequest<State>): Holding | null;

  /**
   * Writes a label beside a lock that was granted in mode `exclusive`, for `duration` ms from now: for {@link labelOf} of every process. The core calls it for
   * holds that are traced and last 250 ms, and again with each renewal. Nothing waits for it, and a failure is ignored. Default: locks have no labels.
   */
  label?(request: AcquireRequest<State>, text: string, duration: number): void;

  /**
   * The label of the present holder of the key; `null` if there is none. Never that of an earlier holder, so a label is kept with the id of its request: then a
   * release need not delete it. A rejection is ignored.
   */
  labelOf?(key: string): Promise<string | null>;

  /**
   * Renews what was granted to `lease` ms from now. Never acquires a lost one again.
   *
   * Called for one lock at a time, so that no lock waits for the outcome of another: a server that hangs must not cost the locks of
   * those that answer. The core renews all locks that are due in one tick, so a backend can still send them together.
   */
  renew(request: AcquireRequest<State>, lease: number): Promise<RenewOutcome>;

  /**
   * Ends a hold, or whatever a request has left behind, in whatever state it is, and also if it was never asked for. The core calls it for
   * every request that it gives up, and again while the outcome is `unknown`.
   *
   * - `released`: it was held, and is not any more (or is retained, see {@link ReleaseOptions.keepFor}).
   * - `lost`: it does not hold the key.
   * - `unknown`: no answer.
   * - {@link Uncommitted}: for locks whose release is a COMMIT.
   */
  release(request: AcquireRequest<State>, options: ReleaseOptions): Promise<ReleaseOutcome>;

  /** The state of the key at the server, or `null` when it is free. */
  inspect?(key: string): Promise<LockInfo | null>;

  /** Frees the key. Resolves to whether it was held or retained (`minHold`). Tokens keep growing. */
  forceRelease?(key: string): Promise<boolean>;

  /**
   * The keys that are held or retained now, in no order. It needs bounded memory, and no command that keeps the server from others for
   * long, whatever the number of keys. A key that is taken or freed meanwhile may be missing or not; the others are all there. A key may appear twice
   * where the iteration of the server does that.
   *
   * @throws LockConfigError with the reason, where `capabilities.list` is not claimed but there is something to say about it
   */
  list?(query: { readonly prefix: string }): AsyncIterable<LockInfo>;

  /**
   * The namespaces on this server in which keys are held or retained, in no order and each one time, for an operator whose {@link list} is
   * empty. Absent where finding them costs the server more than a list does.
   */
  namespaces?(): Promise<readonly string[]>;

  /**
   * Records the name of the {@link BackendContext.instance} on the server, to be kept for a day, so that {@link list} finds it. Called after
   * `connect`, after `recovered`, and each hour; a failure is ignored.
   */
  register?(): Promise<void>;

  /** Settings of the server that weaken the guarantee. */
  diagnose?(): Promise<readonly Diagnostic[]>;

  /** Deletes what is left of keys that are not used any more, and resolves to how many; absent where nothing is left. @throws LockConfigError */
  purge?(options: PurgeOptions): Promise<number>;

  /** Makes a member the one that grants, for all processes; absent for a provider that has none to choose from. @throws LockConfigError */
  switchTo?(member: string): Promise<void>;

  /** The members among which {@link switchTo} chooses. */
  readonly state?: FailoverState;

  /** Durable compare-and-set; absent where the server cannot promise that. */
  readonly casStore?: CasStore;

  /** The records of jobs beside their locks; absent where nothing can be kept beside a lock. */
  readonly records?: RecordStore;

  /** Texts beside the grants of this provider, by which the core finds deadlocks; absent where it looks for none. */
  readonly waits?: WaitBoard;

  /** Closes what `connect` opened, and nothing that the application passed in. Also called when `connect` has failed. */
  close(): Promise<void>;
}

/** The abilities of a backend, as a promise to its users. */
export interface LockCapabilities {
  /** Shared (reader) locks. */
  readonly shared: boolean;
  /**
   * Limited locks, at most `limit` at a time. Their grants carry no token: a resource that compares tokens would refuse all holders but the
   * latest. Default false.
   */
  readonly limits?: boolean;
  /**
   * The server keeps the queue of the processes that wait for a key, by the age of their requests or in the order in which these came. A process
   * that releases a lock and has callers left asks again before the release, so that the release sees all who wait; elsewhere it asks
   * after it.
   */
  readonly fair: boolean;
  /** Grants carry a fencing token. */
  readonly fencing: boolean;
  /**
   * Its fencing tokens take more than 52 bits, as those of a `FailoverLockProvider` do. Another of these cannot be built on it, because
   * that puts its epochs before the 52 bits of its members' tokens. Default false.
   */
  readonly wideTokens?: boolean;
  /** `per-lock`: each lock has a lease of its own. `session`: locks live as long as the backend's session or connection. */
  readonly lease: 'per-lock' | 'session';
  /** The longest that the server may keep a key without a renewal, in ms: longer leases, extensions and `minHold` are refused. Default: any. */
  readonly maxLease?: number;
  /** Released keys can be retained (`minHold`), also after a crash of the holder. */
  readonly minHold: boolean;
  /** `inspect` and `forceRelease` exist. */
  readonly forceRelease: boolean;
  /**
   * Operations of one process on a key are executed in the order in which they were sent, so that an acquire finds an earlier release done that
   * was not answered yet. `release: 'sent'` needs it. Default false.
   */
  readonly ordered?: boolean;
  /** `list` gives all locks of the namespace. Default false. */
  readonly list?: boolean;
}

/**
 * Small values, each under a name, for what processes must agree on permanently: changed by compare-and-set alone.
 *
 * Offered only by a backend in which all writes have one order and an acknowledged write is never lost: a failover
 * that decides by it would otherwise give one lock to two.
 */
export interface CasStore {
  /**
   * Writes `next` if the value is `expected` (`null`: there is none yet), and answers the value after it: `next`, or
   * the value that was found instead. Always a write, also where `next` is `expected`, and so a proof that the value
   * was still the expected one when it was executed.
   *
   * @param name within the namespace of the application: the backend adds that, and its own encoding
   * @throws LockUnavailableError when the outcome is unknown
   */
  compareAndSet(name: string, expected: string | null, next: string): Promise<string | null>;
}

/** The value of a record, and when it was so. */
export interface StoredRecord {
  /** `null` where nothing is stored. */
  readonly value: string | null;
  /** The time of the server when it answered, in ms since 1970. */
  readonly serverTime: number;
}

/**
 * Small texts that outlive locks, each under a name: the last run of a job. Each is changed by compare-and-set, so two writers never
 * overwrite each other. A record is as durable as the locks of its backend, and is kept for at least 400 days after its last write.
 */
export interface RecordStore {
  /**
   * The value as a server knows it. It may be older than the last write, never older than the last that this process was told of.
   *
   * @param name within the namespace of the application: the backend adds that, and its own encoding
   * @throws LockUnavailableError when the server does not answer; LockConfigError when it refuses
   */
  read(name: string): Promise<StoredRecord>;

  /**
   * Writes `next` if the value is `expected` (`null`: there is none yet), and answers the value after it: `next`, or the value that was
   * found instead. A value that is `next` already counts as written, so a repeated call after a lost reply finds its own write.
   *
   * @throws LockUnavailableError when the outcome is unknown; LockConfigError when the server refuses
   */
  replace(name: string, expected: string | null, next: string): Promise<StoredRecord>;

  /** All records of the namespace, in no order. It needs bounded memory, and no command that keeps the server from others for long. */
  list(): AsyncIterable<{ readonly name: string; readonly value: string }>;
}

/** A holder of a key, exclusive or shared. */
export interface SeenGrant {
  /** The id of its request. */
  readonly id: string;
  readonly mode: Exclude<LockMode, 'limited'>;
}

/**
 * One short record for each process, in which it publishes for what its callers wait that hold other locks. A record ends by itself, so that a process that has
 * ended leaves none. The core reads a record and a key of other processes as what anybody may have written.
 */
export interface WaitBoard {
  /**
   * The time of the server, in ms since 1970. It orders the waits of all processes.
   *
   * @throws when the server does not answer
   */
  serverTime(): Promise<number>;

  /**
   * Publishes the record of this instance instead of the one before it, for `keepFor` ms; `null` removes it. At most one call is in flight.
   *
   * @throws when it may not have been written
   */
  publish(text: string | null, keepFor: number): Promise<void>;

  /** The record of the instance with this id, or `null`. @throws when the server does not answer */
  read(instance: string): Promise<string | null>;

  /**
   * The holders of the key, as the server knows them; at most `most` of them. None for a key that is free, retained (`minHold`), or held
   * by limited holders.
   *
   * @throws when the server does not answer
   */
  holders(key: string, most: number): Promise<readonly SeenGrant[]>;
}

/**
 * The backend of another provider, as one that is built on it sees it. Its requests go directly to that backend, beside those of callers that
 * name the other provider. The core repeats a release that was not answered until there is nothing left to release, so the caller may forget
 * it. A lease that is over by the clock is reported as lost, and given back, before the member is renewed or released.
 */
export interface Member extends Pick<
  LockBackend,
  | 'capabilities'
  | 'commandTimeout'
  | 'unansweredFor'
  | 'heldBy'
  | 'renew'
  | 'release'
  | 'inspect'
  | 'forceRelease'
  | 'casStore'
  | 'records'
> {
  /** As {@link LockBackend.acquire}. A request of a composite names no other in `after`. */
  acquire(request: AcquireRequest): Promise<Grant | 'busy'>;
  /** Calls `listener` with what the backend reports. */
  observe(listener: (event: BackendEvent) => void): void;
}

/** Reports of a backend about itself, without a call. Reports about one request go to that request. */
export type BackendEvent =
  /** The server does not answer. Holds stay valid until their deadline. */
  | { readonly type: 'unavailable'; readonly cause: unknown }
  /** The server answers again. The core renews all holds before `emit` returns; waiters may ask after that. */
  | { readonly type: 'recovered' }
  /** A backend that is built on several providers uses another one of them from now on. */
  | {
      readonly type: 'failover';
      readonly to: string;
      readonly epoch: number;
      readonly reason: 'failure' | 'failback' | 'manual';
    };

/**
 * The request of {@link LockBackend.acquire}: to hold one key under one id, from the first ask to the last release. One object stands for
 * it all the time, and what is reported of it is told to that.
 *
 * `wait`, `since` and `callers` change as callers come and go, and all else stays. Read these three when an ask is encoded, each once: what
 * the ask was sent with counts for its answer.
 */
export interface AcquireRequest<State = unknown> {
  /** 128 random bits as hexadecimal digits, never used twice: by this the server distinguishes it from all others. */
  readonly id: string;
  /** The logical key. The backend adds the namespace and its own encoding. */
  readonly key: string;
  readonly mode: LockMode;
  /**
   * In mode `limited`, and only there: it is granted while what the holders take together with it is at most the smallest limit among
   * theirs and its own. Holds that are retained count.
   */
  readonly limited?: LimitShare | undefined;
  /** Milliseconds to keep the lock without a renewal. Meaningless where leases are per session. */
  readonly lease: number;
  /** The server keeps the key for at least this many ms from the grant on, also if the holder crashes. */
  readonly minHold: number;
  /**
   * How many other keys of this provider the caller holds already, which it frees only after this one. A backend with a limited number
   * of connections keeps some for such callers.
   */
  readonly otherKeysHeld: number;
  /** How many ms the first of its callers still waits; 0 is one ask that never queues. */
  readonly wait: number;
  /**
   * When its oldest caller came, in ms with fractions on {@link BackendContext.clock}. A backend with a queue places it by how long ago that is:
   * another process has another clock.
   */
  readonly since: number;
  /** How many callers it could serve one after the other, 1 to 64. See {@link Grant.followers}. */
  readonly callers: number;
  /**
   * Aborts when nobody is left to serve (their waits are over, they were cancelled, the application stops).
   * Made when it is first read: an AbortSignal costs 2 µs, more than a whole uncontended lock in memory. Read it when you queue.
   */
  readonly signal: AbortSignal;
  /**
   * The request for the key before this one of the same lock. This request takes effect only where that one was granted: it is neither granted nor
   * queued nor busy otherwise. Set only where {@link LockBackend.chains} allows it, only for the first ask, and until that is answered. A backend answers both in
   * their order.
   */
  readonly after?: AcquireRequest | undefined;
  /** The part of the request that the backend keeps. The core never looks at it. */
  state?: State | undefined;
  /** The backend's own as well: what it has seen of the holder, for {@link LockBackend.heldBy}, also when nothing else of the request is left. */
  seen?: unknown;
  /**
   * The request waits: for the lock, or for something else that `instead` names, such as a connection, which a caller then gets that leaves. Must be
   * told: until then the core takes the request for unanswered and waits for the answer.
   */
  waits(instead?: LockError): void;
  /** The lock is gone: the server took it away, or its session died. Before the grant has arrived, the grant is not used. */
  lost(cause?: unknown): void;
}

/** A lock, granted. */
export interface Grant {
  /** Larger than every earlier one of this key; `null` where none is honest. Shared by readers granted together. */
  readonly fencingToken: bigint | null;
  /** Until when, on the monotonic clock, the lock is surely ours: see `validUntil` of the toolkit. */
  readonly validUntil: number;
  /** How many ms the server keeps the lock without a renewal. The watchdog renews each third of it. */
  readonly lease: number;
  /** How many callers may have the lock one after the other behind the first, each with the next token. Default: none. */
  readonly followers?: number | undefined;
}

/** The holder of a key, as a backend saw it. Times are in ms on {@link BackendContext.clock}. */
export interface Holding {
  /** How many hold it: several in the modes `shared` and `limited`. */
  readonly holders: number;
  /** The name of the holder's instance, or its id where no name is known; `null` if it is unknown or there are several holders. */
  readonly instance: string | null;
  /** Since when the instance holds it; `null` if that is unknown or there are several holders. */
  readonly since: number | null;
  /** When the backend saw it. The holder may be another one by now. */
  readonly seenAt: number;
}

/** `lost`: not held any more. `unknown`: no answer, which is not loss before the deadline. */
export type RenewOutcome = { readonly validUntil: number } | 'lost' | 'unknown';

/** `lost`: it was not held any more. `unknown`: no answer. */
export type ReleaseOutcome = 'released' | 'lost' | 'unknown' | Uncommitted;

/** The lock is free, or ends by itself, and what was written in its transaction is not surely saved. The holder learns it as a loss. */
export interface Uncommitted {
  readonly written: 'rolled-back' | 'unknown';
  readonly cause: unknown;
}

/** Orders to {@link LockBackend.release} besides freeing the key. */
export interface ReleaseOptions {
  /** Retain the key for this many ms more (`minHold`); 0 frees it. A retained key has no holder and cannot be renewed. */
  readonly keepFor: number;
  /** The task failed or the lock was lost: a backend whose lock is a transaction rolls it back instead of committing. */
  readonly failed: boolean;
}

/** A finding about the configuration of a server. `error`: mutual exclusion cannot hold. */
export interface Diagnostic {
  readonly severity: 'warning' | 'error';
  readonly message: string;
}
