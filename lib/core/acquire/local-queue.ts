import { LockUnavailableError } from '../../api/errors.js';
import type {
  AcquireRequest,
  Answer,
  Grant,
  Holder,
  LockProvider,
  ProviderContext,
  ProviderEvent,
  ReleaseManner,
  ReleaseOutcome,
  RenewOutcome,
} from '../../api/lock-provider.js';
import { canShare, ReaderGroups } from './reader-groups.js';
import { isRetryable } from './retryable.js';

/** What a queue can stand in front of. */
type LockingPart = Pick<LockProvider, 'start' | 'acquire' | 'renew' | 'release' | 'stop'>;

/** A caller that stands in line in this process. */
interface Place {
  readonly request: AcquireRequest;
  readonly resolve: (answer: Grant | 'busy') => void;
  readonly reject: (error: unknown) => void;
}

/**
 * The line of one key. Its first asks the backend, the others wait for that answer.
 *
 * Who asked and was not answered stays the first, until it asks again or is released: what it left in the backend would be in the way
 * of the next one, which would be in its way here, and both would wait for ever.
 */
interface Line {
  readonly name: string;
  readonly places: Set<Place>;
  asking: Place;
  /** The backend has queued the one who asks: somebody else has the lock. */
  isQueued: boolean;
  /** Whether all places can share with the one who asks; undefined when it has to be looked at again. */
  isShared: boolean | undefined;
  /** Why the backend did not answer the last ask, if it did not. Who leaves the line then was not kept out by a holder. */
  trouble: unknown;
}

/**
 * Stands in front of a provider whose waiters are dear (`queue: 'engine'`): first come, first served in this process,
 * and one waiter per key in the backend, so that a thousand waiters cost one connection or node. Callers that hold other keys have a queue for
 * each number of these.
 *
 * Readers that stand together at the head when a shared lock is granted enter with it as one group; those that come
 * later form the next one, so that a writer of another process is not starved.
 */
export class LocalQueue implements LockingPart {
  /** By what {@link lineOf} says. */
  readonly #lines = new Map<string, Line>();
  /** The lines by the holder id of the one who asks. */
  readonly #asking = new Map<string, Line>();
  readonly #groups = new ReaderGroups();
  #context: ProviderContext | undefined;

  constructor(private readonly provider: LockingPart) {}

  start(context: ProviderContext): Promise<void> {
    this.#context = context;
    const emit = (event: ProviderEvent) => {
      this.#forward(event);
    };
    return this.provider.start({ ...context, emit });
  }

  stop(): Promise<void> {
    return this.provider.stop();
  }

  acquire(request: AcquireRequest): Answer<Grant | 'busy'> {
    const line = this.#lines.get(lineOf(request));
    if (!line) return this.#lead(request);
    if (line.asking.request.holder === request.holder) return this.#askAgain(line, request);
    if (request.wait > 0) {
      const answer = this.#queue(line, request);
      this.#context?.emit({ type: 'waiting', holder: request.holder });
      return answer;
    }
    // One attempt gets no place behind others. Unless they are readers as well with nobody known to be in their way:
    // then the answer to the first will be the answer to all.
    if (!line.isQueued && canShare(line.asking.request, request) && isShared(line))
      return this.#queue(line, request, unanswered(request));
    if (line.trouble === undefined) return 'busy';
    throw line.trouble;
  }

  renew(grant: Grant, lease: number): Promise<RenewOutcome> {
    return this.#groups.renew(grant, lease, this.provider);
  }

  release(holder: Holder, manner: ReleaseManner): Answer<ReleaseOutcome> {
    const line = this.#asking.get(holder.holder);
    const leaving = this.#groups.leave(holder);
    try {
      return leaving === 'others-stay' ? 'released' : this.provider.release(leaving, manner);
    } finally {
      if (line) {
        // The engine has given up on an ask that was never answered: the others must not wait for that.
        line.trouble = unanswered(line.asking.request);
        this.#advance(line);
      }
    }
  }

  #lead(request: AcquireRequest): Promise<Grant | 'busy'> {
    return new Promise((resolve, reject) => {
      const place = { request, resolve, reject };
      const name = lineOf(request);
      const line: Line = {
        name,
        places: new Set(),
        asking: place,
        isQueued: false,
        isShared: true,
        trouble: undefined,
      };
      this.#lines.set(name, line);
      this.#ask(line, place);
    });
  }

  #askAgain(line: Line, request: AcquireRequest): Promise<Grant | 'busy'> {
    return new Promise((resolve, reject) => {
      this.#ask(line, { request, resolve, reject });
    });
  }

  /** @param trouble what a caller gets who leaves unserved, while the line itself has no trouble. */
  #queue(line: Line, request: AcquireRequest, trouble?: Error): Promise<Grant | 'busy'> {
    return new Promise((resolve, reject) => {
      const place: Place = { request, resolve, reject };
      line.places.add(place);
      if (line.isShared) line.isShared = canShare(line.asking.request, request);
      const leave = () => {
        if (!line.places.delete(place)) return;
        if (line.isShared === false) line.isShared = undefined;
        const why = line.trouble ?? trouble;
        if (why === undefined) resolve('busy');
        else reject(why);
      };
      request.signal.addEventListener('abort', leave, { once: true });
    });
  }

  #ask(line: Line, place: Place): void {
    const { holder } = place.request;
    line.asking = place;
    line.isQueued = false;
    this.#asking.set(holder, line);
    const answer = new Promise<Grant | 'busy'>((resolve) => {
      resolve(this.provider.acquire(place.request));
    });
    answer.then(
      (outcome) => {
        const isAwaited = this.#asking.has(holder);
        line.trouble = undefined;
        if (outcome === 'busy') place.resolve('busy');
        else this.#admit(place, outcome, isAwaited ? line.places : new Set());
        if (isAwaited) this.#advance(line);
      },
      (error: unknown) => {
        place.reject(error);
        if (isRetryable(error)) line.trouble = error;
        else if (this.#asking.has(holder)) this.#advance(line);
      },
    );
  }

  #admit(first: Place, grant: Grant, others: Set<Place>): void {
    const companions: Place[] = [];
    for (const place of others) {
      if (!canShare(first.request, place.request)) break;
      companions.push(place);
    }
    if (companions.length === 0) {
      first.resolve(grant);
      return;
    }
    const group = this.#groups.open(grant);
    for (const place of [first, ...companions]) {
      others.delete(place);
      place.resolve(group.join(place.request.holder));
    }
  }

  /** The one who asks is done: the next one asks. */
  #advance(line: Line): void {
    this.#asking.delete(line.asking.request.holder);
    const [next] = line.places;
    if (next === undefined) {
      this.#lines.delete(line.name);
      return;
    }
    line.places.delete(next);
    line.isShared = undefined;
    this.#ask(line, next);
  }

  #forward(event: ProviderEvent): void {
    if (event.type === 'lost') {
      for (const holder of this.#groups.membersOf(event.holder)) this.#context?.emit({ ...event, holder });
      return;
    }
    if (event.type === 'waiting') this.#onQueued(this.#asking.get(event.holder));
    this.#context?.emit(event);
  }

  #onQueued(line: Line | undefined): void {
    if (!line) return;
    line.isQueued = true;
    line.trouble = undefined;
    for (const place of line.places) {
      // Those who came for one attempt have their answer.
      if (place.request.wait > 0) continue;
      line.places.delete(place);
      place.resolve('busy');
    }
  }
}

/**
 * The name of the line that a caller is in: the key, and how many others the caller holds. Behind one that holds fewer it could wait for a
 * connection that only its own end would free.
 */
function lineOf({ key, depth = 0 }: AcquireRequest): string {
  return `${depth} ${key}`;
}

/** Looks at all places only when that is not known: of a thousand readers that come together, each would look at all before it. */
function isShared(line: Line): boolean {
  return (line.isShared ??= Array.from(line.places).every((place) => canShare(line.asking.request, place.request)));
}

function unanswered({ key }: AcquireRequest): LockUnavailableError {
  return new LockUnavailableError(`The backend did not answer when it was asked for "${key}".`, { key });
}
