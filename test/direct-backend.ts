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

/** An event of a backend, or a notification to one of its requests. */
export type TestEvent =
  | BackendEvent
  | { readonly type: 'waiting'; readonly holder: string }
  | { readonly type: 'lost'; readonly holder: string; readonly cause?: unknown };

/** A grant that carries its request's key and holder, so that a test can refer to a lock by its grant. */
export interface TestGrant extends Grant {
  readonly key: string;
  readonly holder: string;
  readonly mode: LockMode;
  readonly request: AcquireRequest;
}

/** Calls a backend as the core does, with a request or with the grant it led to. */
interface Direct {
  acquire(request: AcquireRequest): Promise<TestGrant | 'busy'>;
  renew(of: AcquireRequest | TestGrant, lease?: number): Promise<RenewOutcome>;
  release(of: AcquireRequest | TestGrant, options?: ReleaseOptions): Promise<ReleaseOutcome>;
}

export type DirectBackend<B extends LockBackend> = Direct & B;

/** Makes a backend direct. Notifications to its requests go into `events`. */
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
      if (answer === 'not-asked') throw new Error('The request was not sent.');
      return answer === 'busy' ? answer : { ...answer, key, holder, mode, request };
    },
    renew: (of, lease = of.lease) => renew(requestOf(of), lease),
    release: (of, options = { keepFor: 0, failed: false }) => release(requestOf(of), options),
  };
  return Object.assign(backend, calls);
}

/** A request that can be aborted. */
export interface TestRequest extends AcquireRequest<undefined> {
  abort(): void;
}

const random = systemRandom();

/** Creates a request for `key` that waits for 60 s unless it is aborted. */
export function request(key: string, terms: Partial<Omit<AcquireRequest, 'state'>> = {}): TestRequest {
  return requestFor(key, random.id(), terms);
}

/** Returns the grant, or throws if the request was busy. */
export function granted(answer: TestGrant | 'busy'): TestGrant {
  if (answer === 'busy') throw new Error('Expected a grant, but the request was busy.');
  return answer;
}

/** Like {@link request}, with the given id. */
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
