import { LockUnavailableError } from '../lock/errors.js';
import { isPromiseLike } from './answer.js';
import type {
  AcquireRequest,
  Answer,
  Finding,
  Grant,
  Holder,
  LockCapabilities,
  LockProvider,
  ProviderContext,
  ProviderEvent,
  ReleaseManner,
  ReleaseOutcome,
  Renewal,
  RenewOutcome,
} from './lock-provider.js';
import { ReaderGroups } from './reader-groups.js';

/** A caller that stands in line in this process. */
interface Place {
  readonly request: AcquireRequest;
  readonly resolve: (answer: Grant | 'busy') => void;
  readonly reject: (error: unknown) => void;
}

/** The line of one key. Its first asks the backend, the others wait for that answer. */
interface Line {
  readonly places: Set<Place>;
  asking: Place | undefined;
  /** Why the backend did not answer the last ask, if it did not. */
  trouble: unknown;
}

/**
 * Stands in front of a provider whose waiters are dear (`queue: 'engine'`): first come, first served in this process,
 * and one waiter per key in the backend, so that a thousand waiters cost one connection or node.
 *
 * Readers that stand together at the head when a shared lock is granted enter with it as one group; those that come
 * later form the next one, so that a writer of another process is not starved.
 */
export class LocalQueue implements LockProvider {
  readonly capabilities: LockCapabilities;
  readonly inspect?: NonNullable<LockProvider['inspect']>;
  readonly forceRelease?: NonNullable<LockProvider['forceRelease']>;
  readonly check?: () => Promise<readonly Finding[]>;
  readonly #lines = new Map<string, Line>();
  readonly #groups = new ReaderGroups();
  #emit: ProviderContext['emit'] = () => undefined;

  constructor(private readonly provider: LockProvider) {
    this.capabilities = provider.capabilities;
    if (provider.inspect) this.inspect = provider.inspect.bind(provider);
    if (provider.forceRelease) this.forceRelease = provider.forceRelease.bind(provider);
    if (provider.check) this.check = provider.check.bind(provider);
  }

  start(context: ProviderContext): Promise<void> {
    this.#emit = context.emit;
    return this.provider.start({ ...context, emit: (event) => this.#forward(event) });
  }

  stop(): Promise<void> {
    return this.provider.stop();
  }

  acquire(request: AcquireRequest): Answer<Grant | 'busy'> {
    const line = this.#lines.get(request.key);
    if (!line) return this.#lead(request);
    if (request.wait <= 0) {
      if (line.trouble === undefined) return 'busy';
      throw new LockUnavailableError(`The backend of lock provider does not answer.`, {
        key: request.key,
        cause: line.trouble,
      });
    }
    return this.#queue(line, request);
  }

  async renew(renewals: readonly Renewal[]): Promise<readonly RenewOutcome[]> {
    const physical = this.#groups.physical(renewals);
    const outcomes = await this.provider.renew(physical.renewals);
    return physical.indexes.map((index) => outcomes[index] ?? 'unknown');
  }

  release(holder: Holder, manner: ReleaseManner): Answer<ReleaseOutcome> {
    const leaving = this.#groups.leave(holder.holder);
    if (leaving === 'others-stay') return 'released';
    return this.provider.release(leaving ?? holder, manner);
  }

  /** The first in line: no queue, no promise of ours unless the backend needs one. */
  #lead(request: AcquireRequest): Answer<Grant | 'busy'> {
    const answer = this.provider.acquire(request);
    if (!isPromiseLike(answer)) return answer;
    return new Promise((resolve, reject) => {
      const line: Line = { places: new Set(), asking: undefined, trouble: undefined };
      this.#lines.set(request.key, line);
      this.#follow(line, { request, resolve, reject }, answer);
    });
  }

  #queue(line: Line, request: AcquireRequest): Promise<Grant | 'busy'> {
    return new Promise((resolve, reject) => {
      const place: Place = { request, resolve, reject };
      line.places.add(place);
      request.signal.addEventListener(
        'abort',
        () => {
          if (!line.places.delete(place)) return;
          if (line.trouble === undefined) resolve('busy');
          else reject(line.trouble as Error);
        },
        { once: true },
      );
      this.#emit({ type: 'waiting', holder: request.holder });
    });
  }

  #follow(line: Line, place: Place, answer: PromiseLike<Grant | 'busy'>): void {
    line.asking = place;
    answer.then(
      (outcome) => {
        line.trouble = undefined;
        if (outcome === 'busy') place.resolve('busy');
        else this.#admit(line, place, outcome);
        this.#next(line, place.request.key);
      },
      (error: unknown) => {
        line.trouble = error;
        place.reject(error);
        this.#next(line, place.request.key);
      },
    );
  }

  #admit(line: Line, first: Place, grant: Grant): void {
    if (grant.mode === 'exclusive') {
      first.resolve(grant);
      return;
    }
    const group = this.#groups.open(grant);
    first.resolve(grant);
    for (const place of line.places) {
      if (place.request.mode !== 'shared') break;
      line.places.delete(place);
      place.resolve(group.join(place.request.holder));
    }
  }

  #next(line: Line, key: string): void {
    line.asking = undefined;
    for (const place of line.places) {
      line.places.delete(place);
      let answer: Answer<Grant | 'busy'>;
      try {
        answer = this.provider.acquire(place.request);
      } catch (error) {
        answer = Promise.reject(error as Error);
      }
      this.#follow(line, place, Promise.resolve(answer));
      return;
    }
    this.#lines.delete(key);
  }

  #forward(event: ProviderEvent): void {
    if (event.type !== 'lost') return this.#emit(event);
    for (const holder of this.#groups.membersOf(event.holder)) this.#emit({ ...event, holder });
  }
}
