import type { Clock } from './clock.js';
import type { LockInfo } from './lock-info.js';
import type { LockMode, LockOptions } from './lock-options.js';
import type { LockLogger } from './logger.js';
import type { Random } from './random.js';

/**
 * The seam between the engine and a backend. Whoever implements it proves it with the conformance kit of
 * `nestjs-distributed-lock/testing`.
 *
 * The division of work: a provider knows its backend's protocol and nothing of timeouts, re-entry, watchdogs or
 * several keys. The engine calls `acquire`, `renew` and `release`; it computes validity from what they answer.
 *
 * The contract:
 * - The constructor only validates and stores: no socket, no timer. `start` opens, `stop` closes what we opened.
 * - **A holder id is one attempt.** Every operation is idempotent per (key, holder): an `acquire` repeated after a lost
 *   reply finds its own hold, with the same token. The engine never asks again with an id after it
 *   has called `release` for it; an ask of it that is still under way then must not be left holding.
 * - **Three outcomes.** Held, busy, and unknown: what was sent and not answered is unknown and never reported as busy.
 * - No answer may take forever: `renew` and `release` settle within a bounded time even when the backend is gone.
 */
export interface LockProvider {
  /** What this provider can do. The kit fails a capability that is claimed and not observed. */
  readonly capabilities: LockCapabilities;

  /**
   * Connects. Called once, before anything else.
   *
   * @throws LockUnavailableError when the backend cannot be reached; the provider must then go on trying by itself, for
   * applications that choose to start without it (`failFast: false`).
   */
  start(context: ProviderContext): Promise<void>;

  /**
   * Asks for a lock. With `request.wait` 0 it answers at once; otherwise it may queue until `request.signal` aborts. The
   * engine aborts it when the wait is over, so a provider needs no timer of its own.
   *
   * - A {@link Grant} when it is held. A provider may answer without a promise where it needs none.
   * - `'busy'` when somebody else has it and the wait is over or `request.signal` aborted. Then the request stands in no
   *   queue any more. After an abort the answer comes at once, while the backend is told in the background.
   *
   * @throws LockUnavailableError when the outcome is unknown or the backend is down. The engine asks again with the
   * same id, or gives up and calls `release` for it.
   */
  acquire(request: AcquireRequest): Answer<Grant | 'busy'>;

  /**
   * Prolongs the hold to `lease` ms from now. Never acquires a lost one again.
   *
   * Asked for one lock at a time, so that no lock waits for the outcome of another: a server that hangs must not cost the locks of
   * those that answer. The engine renews all locks that are due in one tick, so a provider can still send them together.
   */
  renew(grant: Grant, lease: number): Promise<RenewOutcome>;

  /**
   * Ends a hold, or whatever an attempt left behind. Also called for holders that were never granted.
   *
   * - `released`: it was held, and is not any more (or is parked, see {@link ReleaseManner.keepFor}).
   * - `lost`: this holder does not hold the key.
   * - `unknown`: no answer; the engine calls again.
   * - {@link Uncommitted}: for locks whose release is a COMMIT.
   */
  release(holder: Holder, manner: ReleaseManner): Answer<ReleaseOutcome>;

  /** What the backend knows about the key, or `null` when it is free. */
  inspect?(key: string): Promise<LockInfo | null>;

  /** Frees the key. Resolves to whether it was held or retained (`minHold`). Tokens go on growing. */
  forceRelease?(key: string): Promise<boolean>;

  /** The boot doctor: what in the backend's configuration weakens the guarantee. */
  check?(): Promise<readonly Finding[]>;

  /** Where processes can agree on something for ever; absent where the backend cannot promise that. */
  readonly records?: Records;

  /** Closes what `start` opened, and nothing that the application handed in. Also called when `start` has failed. */
  stop(): Promise<void>;
}

/** An answer now or later: providers that need no I/O answer without the cost of a promise. */
export type Answer<T> = T | PromiseLike<T>;

/** What a provider can do, as a promise to its users. */
export interface LockCapabilities {
  /** Shared (reader) locks. */
  readonly shared: boolean;
  /**
   * First come, first served: among all callers of the backend where it queues them (`queue: 'native'`). Where the engine does,
   * among processes and within each: a process has one place, and its next caller goes behind other processes that came meanwhile.
   */
  readonly fair: boolean;
  /** Grants carry a fencing token. */
  readonly fencing: boolean;
  /**
   * Its fencing tokens take more than 52 bits, as those of a strict `FailoverProvider` do. Another of these cannot stand on it: it
   * puts its epochs before the 52 bits of its engines' tokens. Default false.
   */
  readonly wideTokens?: boolean;
  /** `per-lock`: each lock has a lease of its own. `session`: locks live as long as the provider's session or connection. */
  readonly lease: 'per-lock' | 'session';
  /** The longest that the provider may keep a key without a renewal, in ms: longer leases, extensions and `minHold` are refused. Default: any. */
  readonly maxLease?: number;
  /** Released keys can stay parked (`minHold`), also after a crash of the holder. */
  readonly minHold: boolean;
  /** The options of its own, beyond those of the engine, that it honours for a lock. Any other is refused. Default: none. */
  readonly options?: readonly string[];
  /** `inspect` and `forceRelease` exist. */
  readonly forceRelease: boolean;
  /**
   * Who queues. `native`: the provider's queue takes every waiter. `engine`: waiting is dear (a connection, a node), so
   * the engine's queue stands in front and at most one waiter per process, key and depth of nesting asks the backend.
   */
  readonly queue: 'native' | 'engine';
}

/**
 * Small values, each under a name, for what processes must agree upon for ever: changed by compare-and-set alone.
 *
 * Offered only by a backend in which all writes stand in one order and an acknowledged write is never lost: a fail-over
 * that decides upon it would otherwise give one lock to two.
 */
export interface Records {
  /**
   * Writes `next` if the value is `expected` (`null`: there is none yet), and answers what stands after it: `next`, or
   * the value that was found instead. Always a write, also where `next` is `expected`, and so a proof that the value
   * still stood when it was executed.
   *
   * @param name within the namespace of the application: the provider adds that, and its own encoding
   * @throws LockUnavailableError when the outcome is unknown
   */
  compareAndSet(name: string, expected: string | null, next: string): Promise<string | null>;
}

/** A provider that stands on others of the same application, each known by its name there. */
export interface CompositeProvider extends LockProvider {
  /** The names of the providers that it stands on. */
  readonly memberNames: readonly string[];

  /**
   * Hands over the providers. Called once, before anything else of this provider is looked at, `capabilities` included.
   *
   * @throws LockConfigError for members that it cannot stand on
   */
  compose(members: ReadonlyMap<string, Member>): void;
}

/**
 * A provider as another one uses it. The engine starts it before those that stand on it, even when its backend cannot
 * be reached then (that is theirs to judge), and stops it after them. A queue of the engine stands in front where it needs one.
 * So what it has granted is renewed and given back by that very grant, by which the queue knows who shares it; by its id
 * only what was never answered.
 */
export interface Member extends Pick<
  LockProvider,
  'capabilities' | 'acquire' | 'renew' | 'release' | 'inspect' | 'forceRelease' | 'records'
> {
  /** Tells what the provider tells the engine, of all holders alike. */
  observe(listener: (event: ProviderEvent) => void): void;
}

/** What the engine hands to a provider at its start. */
export interface ProviderContext {
  /** The name under which this provider is registered, for messages. */
  readonly name: string;
  /** The prefix of every key: `[A-Za-z0-9_.-]`, 1 to 64 characters. */
  readonly namespace: string;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: LockLogger;
  /** Tells the engine what happened without being asked. Handled before it returns. */
  emit(event: ProviderEvent): void;
}

/** What a provider may tell unasked. */
export type ProviderEvent =
  /** The backend took the lock away from this holder, or its session died. */
  | { readonly type: 'lost'; readonly holder: string; readonly cause?: unknown }
  /** This attempt is queued. Must be told: until then the engine takes the ask for unanswered and waits for the answer. */
  | { readonly type: 'waiting'; readonly holder: string }
  /** The backend does not answer. Holds stay valid until their deadline. */
  | { readonly type: 'unavailable'; readonly cause: unknown }
  /** The backend answers again. The engine renews all holds before `emit` returns; waiters may ask after that. */
  | { readonly type: 'recovered' }
  /** A provider that stands on several others has gone over to another one. */
  | {
      readonly type: 'switched';
      readonly engine: string;
      readonly epoch: number;
      readonly reason: 'failure' | 'return' | 'manual';
    };

/** One attempt to hold one key, from its first ask to its last release. */
export interface Holder {
  /** The logical key. The provider adds the namespace and its own encoding. */
  readonly key: string;
  /** 128 random bits as hexadecimal digits, never used twice. */
  readonly holder: string;
  readonly mode: LockMode;
}

export interface AcquireRequest extends Holder {
  /** Milliseconds to keep the lock without a renewal. Meaningless where leases are per session. */
  readonly lease: number;
  /** Whether the lease will be renewed. */
  readonly renew: boolean;
  /** The backend keeps the key for at least this many ms from the grant on, also if the holder crashes. */
  readonly minHold: number;
  /** How many ms the caller still waits at the time of the call; 0 is one attempt that never queues. */
  readonly wait: number;
  /**
   * How many other keys of this provider the caller holds already, which it frees only after this one. A provider with a limited number
   * of connections keeps some for such callers. Default 0.
   */
  readonly depth?: number;
  /** The caller's options, for those that a provider has added by declaration merging. */
  readonly options: Readonly<LockOptions>;
  /**
   * Aborts when the caller has left (its wait is over, it was cancelled, the application stops).
   * Made when it is first read: an AbortSignal costs 2 µs, more than a whole uncontended lock. Read it when you queue.
   */
  readonly signal: AbortSignal;
}

/** A lock, granted. */
export interface Grant extends Holder {
  /** Larger than every earlier one of this key; `null` where none is honest. Shared by readers granted together. */
  readonly fencingToken: bigint | null;
  /** Until when, on the monotonic clock, the lock is surely ours: see {@link validUntil}. */
  readonly validUntil: number;
  /** How many ms the backend keeps the lock without a renewal. The watchdog renews each third of it. */
  readonly lease: number;
}

/** `lost`: not this holder's any more. `unknown`: no answer, which is not loss before the deadline. */
export type RenewOutcome = { readonly validUntil: number } | 'lost' | 'unknown';

/** `lost`: it was not this holder's any more. `unknown`: no answer. */
export type ReleaseOutcome = 'released' | 'lost' | 'unknown' | Uncommitted;

/** The lock is free, or ends by itself, and what was written in its transaction is not surely saved. The holder is told of a loss. */
export interface Uncommitted {
  readonly written: 'rolled-back' | 'unknown';
  readonly cause: unknown;
}

export interface ReleaseManner {
  /** Keep the key parked for this many ms more (`minHold`); 0 frees it. A parked key has no holder and cannot be renewed. */
  readonly keepFor: number;
  /** The task failed or the lock was lost: a provider whose lock is a transaction rolls it back instead of committing. */
  readonly failed: boolean;
}

/** One finding of the boot doctor. `error`: mutual exclusion cannot hold. */
export interface Finding {
  readonly severity: 'warning' | 'error';
  readonly message: string;
}
