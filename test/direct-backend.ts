import type {
  AcquireRequest,
  BackendEvent,
  Grant,
  LockBackend,
  ReleaseOptions,
  ReleaseOutcome,
  RenewOutcome,
} from '../lib/api/lock-provider.js';
import type { LockMode } from '../lib/api/lock-mode.js';
import { systemRandom } from '../lib/core/toolkit/random.js';

/** What a backend has reported: of itself, and to one of its requests. */
export type TestEvent =
  | BackendEvent
  | { readonly type: 'waiting'; readonly holder: string }
  | { readonly type: 'lost'; readonly holder: string; readonly cause?: unknown };

/** A grant that knows what it was granted to, so that a test can name a lock by it. */
export interface TestGrant extends Grant {
  readonly key: string;
  readonly holder: string;
  readonly mode: LockMode;
  readonly request: AcquireRequest;
}

/** How a test calls a backend: as the core does, by the requests or by its grants. */
interface Direct {
  acquire(request: AcquireRequest): Promise<TestGrant | 'busy'>;
  renew(of: AcquireRequest | TestGrant, lease?: number): Promise<RenewOutcome>;
  release(of: AcquireRequest | TestGrant, options?: ReleaseOptions): Promise<ReleaseOutcome>;
}

export type DirectBackend<B extends LockBackend> = Direct & B;

/** Makes a backend direct. What its requests are told goes into `events`. */
export function direct<B extends LockBackend>(backend: B, events: TestEvent[] = []): DirectBackend<B> {
  const acquire = backend.acquire.bind(backend);
  const renew = backend.renew.bind(backend);
  const release = backend.release.bind(backend);
  const calls: Direct = {
    async acquire(request) {
      const { key, id: holder, mode } = request;
      request.waits = () => void events.push({ type: 'waiting', holder });
      request.lost = (cause) => void events.push({ type: 'lost', holder, cause });
      const answer = await acquire(request);
      if (answer === 'not-asked') throw new Error('The request was not asked for.');
      return answer === 'busy' ? answer : { ...answer, key, holder, mode, request };
    },
    renew: (of, lease = of.lease) => renew(requestOf(of), lease),
    release: (of, options = { keepFor: 0, failed: false }) => release(requestOf(of), options),
  };
  return Object.assign(backend, calls);
}

/** A request, and the way to abort it. */
export interface TestRequest extends AcquireRequest<undefined> {
  abort(): void;
}

const random = systemRandom();

/** A request for `key`; waits for 60 s unless it is aborted. */
export function request(key: string, terms: Partial<Omit<AcquireRequest, 'state'>> = {}): TestRequest {
  return requestFor(key, random.id(), terms);
}

/** The grant in an answer that must be one. */
export function granted(answer: TestGrant | 'busy'): TestGrant {
  if (answer === 'busy') throw new Error('Expected a grant, and it was busy.');
  return answer;
}

/** As {@link request}, with this id. */
export function requestFor(key: string, id: string, terms: Partial<Omit<AcquireRequest, 'state'>> = {}): TestRequest {
  const controller = new AbortController();
  return {
    key,
    id,
    mode: 'exclusive',
    lease: 30_000,

    minHold: 0,
    otherKeysHeld: 0,
    wait: 60_000,
    since: performance.now(),
    callers: 1,
    signal: controller.signal,
    waits: () => undefined,
    lost: () => undefined,
    abort: () => {
      controller.abort();
    },
    ...terms,
  };
}

function requestOf(of: AcquireRequest | TestGrant): AcquireRequest {
  return 'request' in of ? of.request : of;
}
