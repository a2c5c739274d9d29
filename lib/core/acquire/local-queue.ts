import { LockUnavailableError } from '../../api/errors.js';
import type {
  AcquireRequest,
  BackendEvent,
  Grant,
  Holder,
  LockBackend,
  ReleaseOptions,
  ReleaseOutcome,
  RenewOutcome,
} from '../../api/lock-provider.js';
import { canShare, ReaderGroups } from './reader-groups.js';
import { isRetryable } from '../toolkit/retryable.js';

interface Waiter {
  readonly request: AcquireRequest;
  readonly resolve: (answer: Grant | 'busy') => void;
  readonly reject: (error: unknown) => void;
}

/**
 * The queue of one key. Its first waiter, the head, asks the backend; the others wait for that answer.
 *
 * A head that was not answered stays the head until it asks again or is released: what it left in the backend would be in the way
 * of the next waiter, which would be in its way here, and both would wait permanently.
 */
interface Queue {
  readonly name: string;
  readonly waiters: Set<Waiter>;
  head: Waiter;
  /** The backend has queued the head, because somebody else has the lock. */
  isHeadQueued: boolean;
  /** Whether all waiters can hold beside the head; undefined when that has to be computed again. */
  isJoint: boolean | undefined;
  /** Why the backend did not answer the last ask, if it did not. A waiter that leaves then gets this error instead of 'busy'. */
  failure: unknown;
}

/**
 * Queues locally in front of a backend whose waiters are expensive (`queue: 'local'`): first come, first served in this process,
 * and one waiter per key in the backend, so that a thousand waiters cost one connection or node. Callers that hold other keys have a queue for
 * each number of these.
 *
 * Readers that are first in the queue together when a shared lock is granted enter with it as one group; those that come
 * later form the next one, so that a writer of another process is not starved. Limited holders ask one after the other, each as soon as the one
 * before was granted.
 */
export class LocalQueue implements Pick<LockBackend, 'acquire' | 'renew' | 'release'> {
  /** By what {@link queueNameOf} gives. */
  readonly #queues = new Map<string, Queue>();
  /** The queues by the holder id of their head. */
  readonly #byHead = new Map<string, Queue>();
  readonly #groups = new ReaderGroups();

  constructor(
    private readonly backend: LockBackend,
    /** `isLocal`: it was not the backend that reported it. */
    private readonly emit: (event: BackendEvent, isLocal: boolean) => void,
  ) {}

  async acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    const queue = this.#queues.get(queueNameOf(request));
    if (!queue) return this.#askFirst(request);
    if (queue.head.request.holder === request.holder) return this.#askAgain(queue, request);
    if (request.wait > 0) {
      const answer = this.#wait(queue, request);
      this.emit({ type: 'waiting', holder: request.holder }, true);
      return answer;
    }
    // An attempt that does not wait is not queued. Unless all can hold together and nobody is known to be in their way:
    // then readers get the answer to the head, and limited holders ask when it was granted.
    if (!queue.isHeadQueued && canHoldBeside(queue.head.request, request) && isJoint(queue)) {
      return this.#wait(queue, request, unanswered(request));
    }
    if (queue.failure === undefined) return 'busy';
    throw queue.failure;
  }

  renew(grant: Grant, lease: number): Promise<RenewOutcome> {
    return this.#groups.renew(grant, lease, this.backend);
  }

  release(holder: Holder, options: ReleaseOptions): Promise<ReleaseOutcome> {
    const queue = this.#byHead.get(holder.holder);
    const leaving = this.#groups.leave(holder);
    // Sent before the next waiter asks, so that it arrives before that.
    const released = new Promise<ReleaseOutcome>((resolve) => {
      resolve(leaving === 'others-stay' ? 'released' : this.backend.release(leaving, options));
    });
    if (queue) {
      // The core has given up on an ask that was never answered. The others must not wait for that.
      queue.failure = unanswered(queue.head.request);
      this.#askNext(queue);
    }
    return released;
  }

  /** Passes on what the backend reports, to everyone it concerns. */
  forward(event: BackendEvent): void {
    if (event.type === 'lost') {
      for (const holder of this.#groups.membersOf(event.holder)) this.emit({ ...event, holder }, false);
      return;
    }
    if (event.type === 'waiting') this.#onHeadQueued(this.#byHead.get(event.holder));
    this.emit(event, false);
  }

  #askFirst(request: AcquireRequest): Promise<Grant | 'busy'> {
    return new Promise((resolve, reject) => {
      const head = { request, resolve, reject };
      const name = queueNameOf(request);
      const queue = { name, waiters: new Set<Waiter>(), head, isHeadQueued: false, isJoint: true, failure: undefined };
      this.#queues.set(name, queue);
      this.#ask(queue, head);
    });
  }

  #askAgain(queue: Queue, request: AcquireRequest): Promise<Grant | 'busy'> {
    return new Promise((resolve, reject) => {
      this.#ask(queue, { request, resolve, reject });
    });
  }

  /** @param failure what a waiter gets that leaves, while the last ask of the queue has not failed */
  #wait(queue: Queue, request: AcquireRequest, failure?: Error): Promise<Grant | 'busy'> {
    return new Promise((resolve, reject) => {
      const waiter = { request, resolve, reject };
      queue.waiters.add(waiter);
      if (queue.isJoint) queue.isJoint = canHoldBeside(queue.head.request, request);
      const leave = () => {
        if (!queue.waiters.delete(waiter)) return;
        if (queue.isJoint === false) queue.isJoint = undefined;
        const why = queue.failure ?? failure;
        if (why === undefined) resolve('busy');
        else reject(why);
      };
      request.signal.addEventListener('abort', leave, { once: true });
    });
  }

  #ask(queue: Queue, head: Waiter): void {
    const { holder } = head.request;
    queue.head = head;
    queue.isHeadQueued = false;
    // Otherwise 'busy' may mean that it has left.
    const isImmediate = head.request.wait <= 0;
    this.#byHead.set(holder, queue);
    // In a promise, so that the queue goes on also after a backend that throws instead of rejecting.
    const answered = new Promise<Grant | 'busy'>((resolve) => {
      resolve(this.backend.acquire(head.request));
    });
    answered.then(
      (answer) => {
        // Otherwise it was released meanwhile, and the next waiter asks already.
        const isHead = this.#byHead.has(holder);
        queue.failure = undefined;
        if (answer === 'busy') {
          head.resolve('busy');
          if (isHead && isImmediate) this.#refuse(queue, (request) => wantsNoLess(request, head.request));
        } else this.#admit(head, answer, isHead ? queue.waiters : new Set());
        if (isHead) this.#askNext(queue);
      },
      (error: unknown) => {
        head.reject(error);
        if (isRetryable(error)) queue.failure = error;
        else if (this.#byHead.has(holder)) this.#askNext(queue);
      },
    );
  }

  #admit(head: Waiter, grant: Grant, others: Set<Waiter>): void {
    const companions: Waiter[] = [];
    for (const waiter of others) {
      if (!canShare(head.request, waiter.request)) break;
      companions.push(waiter);
    }
    if (companions.length === 0) {
      head.resolve(grant);
      return;
    }
    const group = this.#groups.open(grant);
    for (const waiter of [head, ...companions]) {
      others.delete(waiter);
      waiter.resolve(group.join(waiter.request.holder));
    }
  }

  /** The head is done. */
  #askNext(queue: Queue): void {
    this.#byHead.delete(queue.head.request.holder);
    const [next] = queue.waiters;
    if (next === undefined) {
      this.#queues.delete(queue.name);
      return;
    }
    queue.waiters.delete(next);
    queue.isJoint = undefined;
    this.#ask(queue, next);
  }

  #onHeadQueued(queue: Queue | undefined): void {
    if (!queue) return;
    queue.isHeadQueued = true;
    queue.failure = undefined;
    this.#refuse(queue, () => true);
  }

  /** Those that do not wait have their answer. */
  #refuse(queue: Queue, isConcerned: (request: AcquireRequest) => boolean): void {
    for (const waiter of queue.waiters) {
      if (waiter.request.wait > 0 || !isConcerned(waiter.request)) continue;
      queue.waiters.delete(waiter);
      waiter.resolve('busy');
    }
  }
}

/**
 * The name of the queue of a caller: the key, and how many others the caller holds. Behind a caller that holds fewer it could wait for a
 * connection that only its own end would free.
 */
function queueNameOf({ key, depth = 0 }: AcquireRequest): string {
  return `${depth} ${key}`;
}

/** Whether the backend can grant both at a time. */
function canHoldBeside(one: AcquireRequest, other: AcquireRequest): boolean {
  return canShare(one, other) || (one.limited !== undefined && other.limited !== undefined);
}

/** Whether a limited lock is busy if the other one was busy a moment ago. */
function wantsNoLess({ limited }: AcquireRequest, other: AcquireRequest): boolean {
  if (!limited || !other.limited) return false;
  return limited.weight >= other.limited.weight && limited.limit <= other.limited.limit;
}

/** Compares all waiters only when the result is not known: of a thousand that come together, each would compare all before it. */
function isJoint(queue: Queue): boolean {
  return (queue.isJoint ??= Array.from(queue.waiters).every((waiter) =>
    canHoldBeside(queue.head.request, waiter.request),
  ));
}

function unanswered({ key }: AcquireRequest): LockUnavailableError {
  return new LockUnavailableError(`The backend did not answer when it was asked for "${key}".`, { key });
}
