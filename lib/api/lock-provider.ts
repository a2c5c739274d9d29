import type { Clock } from './clock.js';
import type { LockError } from './errors.js';
import type { FailoverState } from './failover-state.js';
import type { LockInfo } from './lock-info.js';
import type { LimitShare, LockMode } from './lock-mode.js';
import type { LockLogger } from './logger.js';
import type { PurgeOptions } from './purge-options.js';
import type { Random } from './random.js';

/*
 * The interface between the core and a backend. The conformance kit, `nestjs-distributed-lock/provider-kit`, tests an
 * implementation.
 *
 * A backend implements its protocol and knows nothing about timeouts, re-entry, watchdogs, or multi-key locks. The core
 * calls `acquire`, `renew`, and `release`, and computes validity from the results.
 */

/**
 * A provider as passed to the module: validated options. It's stateless and opens no connections, so it can serve any
 * number of applications, sequentially or concurrently.
 */
export interface LockProvider {
  /** The names of the providers this one is built on. Default: none. */
  readonly members?: readonly string[];

  /**
   * Creates the backend for one application. Performs no I/O; {@link LockBackend.connect} opens connections.
   *
   * @throws LockConfigError for members that this provider cannot be built on
   */
  createBackend(context: BackendContext): LockBackend;
}

/** One of the applications that share a namespace. */
export interface Instance {
  /**
   * 12 hexadecimal digits. All ids generated with the application's `random`, including request ids, start with them.
   */
  readonly id: string;
  /** The `instance` module option, for display. */
  readonly name: string;
}

/** What the core passes to a backend. */
export interface BackendContext {
  /** The name under which the provider is registered, for messages. */
  readonly name: string;
  /** The prefix of every key: `[A-Za-z0-9_.-]`, 1 to 64 characters. */
  readonly namespace: string;
  readonly instance: Instance;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: LockLogger;
  /** Reports an event that wasn't caused by a call. The core handles it before this returns. */
  emit(event: BackendEvent): void;
  /**
   * Whether the backend only inspects or frees existing locks for an operator and never acquires any. If so, `connect`
   * must leave nothing on the server. Default false.
   */
  readonly isObserver?: boolean;
  /**
   * The backend of one of {@link LockProvider.members}. The core connects that backend before this one and closes it
   * afterward.
   */
  member(name: string): Member;
}

/**
 * The object that talks to the store for one provider, in one application.
 *
 * `State` is the type of {@link AcquireRequest.state}, which the backend keeps for each request. Omit it if the backend
 * is stateless.
 *
 * The contract:
 * - **The request is the handle.** Every operation refers to it and is idempotent: an `acquire` repeated after a lost
 *   reply finds its own hold, with the same token. A request has at most one `acquire` in flight. After `release`, the
 *   core never acquires that request again; an `acquire` still in flight at that point must not leave the key held.
 * - **An outcome is held, busy, or unknown.** If a command is sent but gets no response, its outcome is unknown, never
 *   busy.
 * - **Every call ends.** `renew` and `release` settle within a bounded time, even if the server is gone.
 */
export interface LockBackend<State = unknown> {
  /** This backend's capabilities. The kit fails if the backend claims a capability it lacks. */
  readonly capabilities: LockCapabilities;

  /**
   * How long the server may be silent, in ms, before the backend replaces the connection; 0 for a backend that also
   * monitors idle connections. Declare it if the backend reconnects automatically: a caller with `wait: 0` then waits 1
   * s longer than this for a response, and an unanswered request is resent within that time. If omitted, such a caller
   * waits 1 s and fails after the first failed attempt.
   */
  readonly commandTimeout?: number | undefined;

  /**
   * Whether locks exist only in this process, so a held lock doesn't need to keep it alive. Default false: while the
   * server is down, a holder has no open socket, but its process must not exit.
   */
  readonly locksEndWithProcess?: boolean;

  /**
   * Connects. The core calls it once, before anything else.
   *
   * @throws LockUnavailableError if the first attempt fails. The backend must then keep trying to reconnect, for
   * applications that start without it (`failFast: false`).
   */
  connect(): Promise<void>;

  /**
   * Requests a lock. If `request.wait` is 0, respond immediately; otherwise, you may queue it until `request.signal`
   * aborts. The core aborts the signal when no caller is left to serve, so the backend doesn't need a timer.
   *
   * - A {@link Grant} if the request holds the lock.
   * - `'busy'` if another request holds the key, and the wait is over or the signal aborted. The request must no longer
   * be in any queue. After an abort, respond immediately and notify the server in the background.
   * - `'not-asked'` if the `after` request wasn't granted. The request must then leave nothing on the server.
   *
   * @throws LockUnavailableError when the outcome is unknown or the server is down. The core acquires the same request
   * again, or gives up and calls `release` for it. `sent: false` means that no call for this request can have reached a
   * server.
   */
  acquire(request: AcquireRequest<State>): Promise<Grant | 'busy' | 'not-asked'>;

  /**
   * Whether a request for the key `next` may refer to one for `key` in {@link AcquireRequest.after}. The core calls
   * `acquire` for both in one tick, so the backend can send them together. By default, it may not, and a lock's keys
   * are requested one by one.
   */
  chains?(key: string, next: string): boolean;

  /**
   * How long, in ms, the backend has been waiting for the server to respond about a waiting request. A caller whose
   * wait ends during that time isn't rejected as busy. `Infinity` while a grant is being confirmed, or if this throws;
   * 0 while no command is in flight. Not needed if the backend is notified of every key change and can't fall silent.
   */
  unansweredFor?(request: AcquireRequest<State>): number;

  /**
   * The holder that keeps this request out, as the backend last saw it for this request; `null` if it hasn't seen one.
   * The core calls it when a caller starts to wait, is granted the lock after a wait, or is rejected as busy, even
   * after `acquire` has settled. Answer from memory, without side effects: errors are built from the result. If this is
   * omitted or throws, the holder is unknown.
   */
  heldBy?(request: AcquireRequest<State>): Holding | null;

  /**
   * Stores a label with a lock that was granted in mode `exclusive`, for `duration` ms from now, so that {@link
   * labelOf} finds it in every process. The core calls it for traced holds after 250 ms, and again with each renewal.
   * The core doesn't wait for it and ignores failures. Default: locks have no labels.
   */
  label?(request: AcquireRequest<State>, text: string, duration: number): void;

  /**
   * The label of the key's current holder; `null` if it has none. Never return an earlier holder's label: if you
   * store a label with the id of its request, a release doesn't need to delete it. Rejections are ignored.
   */
  labelOf?(key: string): Promise<string | null>;

  /**
   * Renews a granted lock to `lease` ms from now. Must never reacquire a lost lock, and must never shorten the lease:
   * a renewal may be executed long after it was given up, when the lease has been extended since.
   *
   * The core calls this separately for each lock so that no lock waits for another: if one server hangs, locks on the
   * others must survive. It renews all due locks in the same tick, so a backend can still send the renewals together.
   */
  renew(request: AcquireRequest<State>, lease: number): Promise<RenewOutcome>;

  /**
   * Ends a hold, or removes whatever a request has left behind, even if the lock was never acquired. The core calls it
   * for every request that it gives up on, and repeats the call while the outcome is `unknown`.
   *
   * - `released`: the request held the key and no longer does (or the key is retained, see
   *   {@link ReleaseOptions.keepFor}).
   * - `lost`: the request did not hold the key.
   * - `unknown`: the server didn't respond.
   * - {@link Uncommitted}: for locks whose release is a COMMIT.
   */
  release(request: AcquireRequest<State>, options: ReleaseOptions): Promise<ReleaseOutcome>;

  /** The key's state on the server, or `null` if it is free. */
  inspect?(key: string): Promise<LockInfo | null>;

  /** Frees the key. Resolves to whether it was held or retained (`minHold`). Tokens keep increasing. */
  forceRelease?(key: string): Promise<boolean>;

  /**
   * The keys currently held or retained, in any order. However many there are, use bounded memory, and avoid commands
   * that block the server for long. A key acquired or freed during the iteration may be missing; all others must
   * appear. A key may appear twice if the server's iteration works that way.
   *
   * @throws LockConfigError with the reason, if `capabilities.list` is false and the backend knows why
   */
  list?(query: { readonly prefix: string }): AsyncIterable<LockInfo>;

  /**
   * The namespaces on this server in which keys are held or retained, each once and in any order, for an operator whose
   * {@link list} found nothing. Omit this if finding them costs the server more than listing keys does.
   */
  namespaces?(): Promise<readonly string[]>;

  /**
   * Stores the name of {@link BackendContext.instance} on the server for a day, so that {@link list} finds it. The core
   * calls it after `connect`, after `recovered`, and every hour; failures are ignored.
   */
  register?(): Promise<void>;

  /** Finds server settings that weaken the guarantees. */
  diagnose?(): Promise<readonly Diagnostic[]>;

  /**
   * Deletes data left behind by unused keys, and resolves to the number of keys. Absent if the backend leaves nothing
   * behind. @throws LockConfigError
   */
  purge?(options: PurgeOptions): Promise<number>;

  /**
   * Switches all processes to this member. Absent if the provider has no members to choose from.
   *
   * @throws LockConfigError
   */
  switchTo?(member: string): Promise<void>;

  /** The members that {@link switchTo} can choose from. */
  readonly state?: FailoverState;

  /** A durable compare-and-set. Absent if the server cannot guarantee it. */
  readonly casStore?: CasStore;

  /** Job records. Absent if the backend can store only locks. */
  readonly records?: RecordStore;

  /**
   * The records of waiting processes, which the core uses to detect deadlocks. Absent if the core shouldn't look for
   * deadlocks on this backend.
   */
  readonly waits?: WaitBoard;

  /** Closes what `connect` opened, but nothing that the application passed in. Also called if `connect` failed. */
  close(): Promise<void>;
}

/** What a backend guarantees to its users. */
export interface LockCapabilities {
  /** Shared (reader) locks. */
  readonly shared: boolean;
  /**
   * Limited locks: at most `limit` holders at once. Their grants don't have a fencing token because a resource that
   * compares tokens would reject all but the latest holder. Default false.
   */
  readonly limits?: boolean;
  /**
   * The server keeps a queue of the processes that wait for a key, ordered by request age or arrival. A process with
   * more waiting callers then sends its next request before it releases the lock, so the release sees all waiting
   * processes; without a queue, it sends the request after the release.
   */
  readonly fair: boolean;
  /** Grants have a fencing token. */
  readonly fencing: boolean;
  /**
   * Fencing tokens need more than 52 bits, as with `FailoverLockProvider`. A `FailoverLockProvider` cannot be built on
   * this provider, because it prefixes its members' 52-bit tokens with its epoch. Default false.
   */
  readonly wideTokens?: boolean;
  /** `per-lock`: each lock has its own lease. `session`: locks live as long as the backend's session or connection. */
  readonly lease: 'per-lock' | 'session';
  /**
   * The maximum time the server may keep a key without a renewal, in ms: longer leases, extensions, and `minHold`
   * values are rejected. Default: no limit.
   */
  readonly maxLease?: number;
  /** Released keys can be retained (`minHold`), even after the holder has crashed. */
  readonly minHold: boolean;
  /** `inspect` and `forceRelease` are available. */
  readonly forceRelease: boolean;
  /**
   * The server executes a process's operations on a key in the order they were sent, so an acquire can rely on an
   * earlier release that hasn't received a response yet. `release: 'sent'` requires this. Default false.
   */
  readonly ordered?: boolean;
  /** `list` returns all locks in the namespace. Default false. */
  readonly list?: boolean;
}

/**
 * Small named values that all processes must agree on permanently. They change only by compare-and-set.
 *
 * A backend may provide this only if it applies all writes in a single order and never loses an acknowledged write.
 * Otherwise, a failover that relies on it could grant one lock to two holders.
 */
export interface CasStore {
  /**
   * Writes `next` if the value is `expected` (`null`: no value yet), and resolves to the value afterwards: `next`, or
   * the value that was found instead. It always writes, even if `next` equals `expected`, so success proves that the
   * value was still as expected.
   *
   * @param name without the namespace: the backend adds the namespace and its own encoding
   * @throws LockUnavailableError when the outcome is unknown
   */
  compareAndSet(name: string, expected: string | null, next: string): Promise<string | null>;
}

/** A record's value, and when the server read it. */
export interface StoredRecord {
  /** The value, or `null` if nothing is stored. */
  readonly value: string | null;
  /** The server's time when it responded, in ms since 1970. */
  readonly serverTime: number;
}

/**
 * Small named strings that outlive locks: each job's last run. They change by compare-and-set, so two writers never
 * overwrite each other. A record is as durable as its backend's locks, and is kept for at least 400 days after its last
 * write.
 */
export interface RecordStore {
  /**
   * The value on the server. It may be older than the last write, but it is never older than the last value this
   * process has seen.
   *
   * @param name without the namespace: the backend adds the namespace and its own encoding
   * @throws LockUnavailableError when the server doesn't respond; LockConfigError when it rejects the read
   */
  read(name: string): Promise<StoredRecord>;

  /**
   * Writes `next` if the value is `expected` (`null`: no value yet), and resolves to the value afterwards: `next`, or
   * the value that was found instead. If the value is already `next`, it counts as written, so a call repeated after a
   * lost reply finds its own write.
   *
   * @throws LockUnavailableError when the outcome is unknown; LockConfigError when the server rejects it
   */
  replace(name: string, expected: string | null, next: string): Promise<StoredRecord>;

  /**
   * All records in the namespace, in any order. Use bounded memory, and avoid commands that block the server for long.
   */
  list(): AsyncIterable<{ readonly name: string; readonly value: string }>;
}

/** A holder of a key, exclusive or shared. */
export interface SeenGrant {
  /** The id of the holder's request. */
  readonly id: string;
  readonly mode: Exclude<LockMode, 'limited'>;
}

/**
 * One short record per process that lists what its callers are waiting for while holding other locks. Records expire,
 * so a process that has exited leaves none behind. The core doesn't trust other processes' records and keys: any client
 * could have written them.
 */
export interface WaitBoard {
  /**
   * The server's time, in ms since 1970. Used to order waits across processes.
   *
   * @throws when the server does not answer
   */
  serverTime(): Promise<number>;

  /**
   * Writes this instance's record, which expires after `keepFor` ms; `null` removes it. Calls never overlap.
   *
   * @throws when the record may not have been written
   */
  publish(text: string | null, keepFor: number): Promise<void>;

  /** The record of the instance with this id, or `null`. @throws when the server does not answer */
  read(instance: string): Promise<string | null>;

  /**
   * Up to `most` of the key's holders on the server. Empty for a key that is free, retained (`minHold`), or held in
   * `limited` mode.
   *
   * @throws when the server does not answer
   */
  holders(key: string, most: number): Promise<readonly SeenGrant[]>;
}

/**
 * A member's backend, as seen by the composite provider built on it. Requests go directly to that backend, alongside
 * requests from callers that name the member.
 */
export interface Member extends Pick<
  LockBackend,
  'capabilities' | 'commandTimeout' | 'inspect' | 'forceRelease' | 'casStore' | 'records'
> {
  /**
   * Creates a request to this member for the lock `origin` wants from the composite. Nothing is sent until
   * {@link MemberLockRequest.acquire} is called.
   *
   * @param terms default: the terms of `origin`
   */
  request(origin: AcquireRequest, terms?: MemberTerms): MemberLockRequest;
  /** Calls `listener` with each backend event. */
  observe(listener: (event: BackendEvent) => void): void;
}

/**
 * The parts of a request that a composite provider chooses for each member. `wait`, `callers`, and `signal` may change
 * between attempts.
 */
export type MemberTerms = Pick<
  AcquireRequest,
  'id' | 'lease' | 'minHold' | 'wait' | 'callers' | 'signal' | 'waits' | 'lost'
>;

/**
 * A composite provider's request to one member, from the first attempt to the release. An expired lease is released and
 * reported as lost before the request is renewed or released, and before another caller in this process requests the
 * key.
 */
export interface MemberLockRequest {
  /** The time until which the lock is held, on {@link BackendContext.clock}; `-Infinity` if it is not held. */
  readonly validUntil: number;
  /** Like {@link LockBackend.unansweredFor}. */
  readonly unansweredFor: number;
  /** Like {@link LockBackend.heldBy}. */
  readonly heldBy: Holding | null;
  /**
   * Like {@link LockBackend.acquire}. Resolves to the same grant while the lock is held, and to `busy` once it has been
   * released or lost.
   */
  acquire(): Promise<Grant | 'busy'>;
  /** Like {@link LockBackend.renew}. */
  renew(lease: number): Promise<RenewOutcome>;
  /**
   * Like {@link LockBackend.release}. The core repeats an unanswered release until nothing is left to release, and also
   * releases a late grant, so the composite may discard the request.
   */
  release(options: ReleaseOptions): Promise<ReleaseOutcome>;
}

/** An event that a backend reports about itself. Events about one request are reported through that request. */
export type BackendEvent =
  /** The server isn't responding. Holds stay valid until their deadline. */
  | { readonly type: 'unavailable'; readonly cause: unknown }
  /**
   * The server is responding again. The core renews all holds before `emit` returns, so renewals precede the waiters'
   * requests.
   */
  | { readonly type: 'recovered' }
  /** A failover backend has switched to another of its members. */
  | {
      readonly type: 'failover';
      readonly to: string;
      readonly epoch: number;
      readonly reason: 'failure' | 'failback' | 'manual';
    };

/**
 * A request passed to {@link LockBackend.acquire} to hold one key under one id, from the first attempt to the last
 * release. It stays the same object, which the backend uses to report back.
 *
 * `wait`, `since`, and `callers` change as callers come and go; everything else is constant. Read each of these once,
 * when you encode a command, because its response applies to the values you sent.
 */
export interface AcquireRequest<State = unknown> {
  /**
   * 128 random bits as hexadecimal digits, never used twice. The id distinguishes the request from all others on the
   * server.
   */
  readonly id: string;
  /** The logical key. The backend adds the namespace and its own encoding. */
  readonly key: string;
  readonly mode: LockMode;
  /**
   * Set only in mode `limited`. Grant the request if the weights of the holders and the request add up to at most the
   * smallest of their limits. Retained holds count.
   */
  readonly limited?: LimitShare | undefined;
  /** Milliseconds to keep the lock without a renewal. Meaningless if locks live as long as a session. */
  readonly lease: number;
  /** The server keeps the key locked for at least this many ms after the grant, even if the holder crashes. */
  readonly minHold: number;
  /**
   * How many other keys of this provider the caller already holds and will free only after this one. A backend with a
   * limited number of connections reserves some for such callers.
   */
  readonly otherKeysHeld: number;
  /** How much longer the oldest caller will wait, in ms; 0 means a single attempt that never queues. */
  readonly wait: number;
  /**
   * When the oldest caller arrived, in fractional ms on {@link BackendContext.clock}. A backend with a queue orders
   * requests by age, because every process has its own clock.
   */
  readonly since: number;
  /** How many callers the grant could serve in turn, 1 to 64. See {@link Grant.followers}. */
  readonly callers: number;
  /**
   * Aborts when no caller is left to serve: their waits have ended, they were canceled, or the application is shutting
   * down. Created on first read, because an AbortSignal takes 2 µs, longer than a whole uncontended in-memory lock.
   * Read it only when you queue the request.
   */
  readonly signal: AbortSignal;
  /**
   * The request for the previous key of the same lock. This request takes effect only if that one was granted;
   * otherwise, it must not be granted, queued, or reported busy. Set only if {@link LockBackend.chains} allows it, and
   * only until the first attempt gets a response. Respond to both requests in order.
   */
  readonly after?: AcquireRequest | undefined;
  /** The backend's own state for this request. The core never reads it. */
  state?: State | undefined;
  /** The backend's own record of the holder, for {@link LockBackend.heldBy}. It may outlive `state`. */
  seen?: unknown;
  /**
   * Reports that the request is waiting for the lock, or for something else, such as a connection; in the latter case,
   * a caller that stops waiting gets the error `instead`. A backend must call this: until then, the core treats the
   * request as unanswered.
   */
  waits(instead?: LockError): void;
  /**
   * Reports that the lock is lost: the server took it away, or its session died. If the grant hasn't arrived yet, the
   * core won't use it.
   */
  lost(cause?: unknown): void;
}

/** The grant of a lock. */
export interface Grant {
  /**
   * The fencing token, larger than any earlier token for this key; `null` if the backend has no reliable tokens.
   * Readers granted the lock together share a token.
   */
  readonly fencingToken: bigint | null;
  /**
   * The time until which this process definitely holds the lock, on the monotonic clock: see `validUntil` in the
   * toolkit.
   */
  readonly validUntil: number;
  /**
   * How long the server keeps the lock without a renewal, in ms. The watchdog renews the lock after a third of that
   * time.
   */
  readonly lease: number;
  /**
   * How many more callers may hold the lock after the first, one at a time, each with the next token. Default: none.
   */
  readonly followers?: number | undefined;
}

/** The holder of a key, as a backend saw it. Times are in ms on {@link BackendContext.clock}. */
export interface Holding {
  /** The number of holders; can exceed one in `shared` and `limited` modes. */
  readonly holders: number;
  /**
   * The name of the holder's instance, or its id if the name is unknown; `null` if both are unknown or there are
   * several holders.
   */
  readonly instance: string | null;
  /** When the instance acquired the key; `null` if unknown or if there are several holders. */
  readonly since: number | null;
  /** When the backend saw this holder; it may have changed since then. */
  readonly seenAt: number;
}

/**
 * The outcome of a renewal. `lost`: the lock is no longer held. `unknown`: no response; the lock is still held until
 * its deadline.
 */
export type RenewOutcome = { readonly validUntil: number } | 'lost' | 'unknown';

/** The outcome of a release. `lost`: the lock was no longer held. `unknown`: no response. */
export type ReleaseOutcome = 'released' | 'lost' | 'unknown' | Uncommitted;

/**
 * A release whose COMMIT failed: the lock is free or will expire, but the writes in its transaction may be lost. The
 * holder treats this as a loss.
 */
export interface Uncommitted {
  readonly written: 'rolled-back' | 'unknown';
  readonly cause: unknown;
}

/** What {@link LockBackend.release} does in addition to freeing the key. */
export interface ReleaseOptions {
  /**
   * How much longer to retain the key, in ms (`minHold`); 0 frees it. A retained key has no holder and cannot be
   * renewed.
   */
  readonly keepFor: number;
  /**
   * Whether the task failed or the lock was lost. If a lock uses a transaction, the backend then rolls it back instead
   * of committing.
   */
  readonly failed: boolean;
}

/** A finding about a server's configuration. Severity `error`: mutual exclusion isn't guaranteed. */
export interface Diagnostic {
  readonly severity: 'warning' | 'error';
  readonly message: string;
}
