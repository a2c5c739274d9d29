import { Redis } from 'ioredis';
import type { AcquireRequest, BackendContext, ReleaseOutcome } from '../../lib/api/lock-provider.js';
import { LockUnavailableError } from '../../lib/api/errors.js';
import { RedisLockProvider, type RedisLockProviderOptions } from '../../lib/providers/redis/index.js';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import type { RedisBackend } from '../../lib/providers/redis/redis-backend.js';
import { FakeClock } from '../../lib/testing/index.js';
import { contextFor as contextOf } from '../backend-context.js';
import { type ClientLibrary, IOREDIS } from './client-libraries.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import { type DirectBackend, direct, type TestEvent, type TestGrant, type TestRequest } from '../direct-backend.js';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';
import { TIMEOUT, until } from '../until.js';
import { LOCK_SCRIPT } from '../../lib/providers/redis/lua/lock-script.js';

/** The instance of every backend started here. */
export const INSTANCE = { id: '0123456789ab', name: 'host:1' };

export { granted, request, type TestGrant, type TestRequest } from '../direct-backend.js';
export { until };

// A test that fails halfway must not leave connections that keep Jest from exiting.
const started = new Set<RedisBackend>();
afterAll(async () => {
  await Promise.all([...started].map((backend) => backend.close()));
});

/**
 * Starts a server for the tests of one `describe`, and an admin client that bypasses the backends. Each test starts
 * with an empty server.
 */
export function redisForTests(): { readonly server: RedisServer; readonly admin: Redis } {
  let server!: RedisServer;
  let admin!: Redis;
  beforeAll(async () => {
    server = await startRedisServer();
    admin = new Redis(server.url);
  });
  beforeEach(() => admin.flushall());
  afterAll(async () => {
    admin.disconnect();
    await server.stop();
  });
  return {
    get server() {
      return server;
    },
    get admin() {
      return admin;
    },
  };
}

/** A connected backend, and the events that it emitted. */
export interface StartedBackend {
  readonly backend: DirectBackend<RedisBackend>;
  readonly events: TestEvent[];
}

/** Returns the context that the core passes to a backend. Its events go into `events`. */
export function contextFor(events: TestEvent[], context: Partial<BackendContext> = {}): BackendContext {
  return contextOf(events, { name: 'redis', ...context });
}

/** Returns a backend that is not connected. */
export function backendOf(
  options: RedisLockProviderOptions,
  context: Partial<BackendContext> = {},
  events: TestEvent[] = [],
): DirectBackend<RedisBackend> {
  const backend = new RedisLockProvider(options).createBackend(contextFor(events, context)) as RedisBackend;
  started.add(backend);
  return direct(backend, events);
}

/** Connects a backend. To Redis, each one is a separate process. */
export async function startBackend(
  options: RedisLockProviderOptions,
  context: Partial<BackendContext> = {},
): Promise<StartedBackend> {
  const events: TestEvent[] = [];
  const backend = backendOf(options, context, events);
  await backend.connect();
  return { backend, events };
}

/**
 * Like {@link startBackend}, with a clock that stands still until the test advances it. Meanwhile its waiters don't
 * poll, so they get a lock only from a message, or in the next second of this clock. (The server counts in real time:
 * it passes over a process that has not polled for 3 s.)
 */
export async function startWithFakeClock(
  options: RedisLockProviderOptions,
): Promise<StartedBackend & { readonly time: FakeClock }> {
  const time = new FakeClock();
  // The timeout runs on the same clock, so a short one would pass while the test advances it.
  return { ...(await startBackend({ commandTimeout: '1h', ...options }, { clock: time })), time };
}

/** Starts two processes on one server, a steady one and one whose wire can be cut, for each test of one `describe`. */
export function twoProcesses(
  redis: { readonly server: RedisServer },
  library: ClientLibrary = IOREDIS,
): { readonly steady: StartedBackend; readonly shaky: StartedBackend; readonly proxy: TcpProxy } {
  let steady!: StartedBackend;
  let shaky!: StartedBackend;
  let proxy!: TcpProxy;
  beforeEach(async () => {
    proxy = await startTcpProxy(redis.server.port);
    // A server that is slow to respond must not cost the steady process its connection.
    steady = await startBackend({ ...library.server(redis.server.url), commandTimeout: '10s' });
    shaky = await startBackend(library.server(`redis://127.0.0.1:${proxy.port}`));
    // Makes the server load the script, so a lost reply belongs to an operation.
    await Promise.all([steady.backend.inspect('nothing'), shaky.backend.inspect('nothing')]);
  });
  afterEach(async () => {
    await Promise.all([steady.backend.close(), shaky.backend.close()]);
    await proxy.close();
  });
  return {
    get steady() {
      return steady;
    },
    get shaky() {
      return shaky;
    },
    get proxy() {
      return proxy;
    },
  };
}

/**
 * Makes the last caller of a request leave: the core aborts the request and releases it in any case. Returns the
 * outcome of the release.
 */
export function leave(backend: DirectBackend<RedisBackend>, request: TestRequest): Promise<ReleaseOutcome> {
  request.abort();
  return backend.release(request, RELEASE);
}

/** Acquires as the core does: resends the same request until there is an answer. */
export function ask(backend: DirectBackend<RedisBackend>, request: AcquireRequest): Promise<TestGrant | 'busy'> {
  return untilAnswered(() => backend.acquire(request), 60_000);
}

const layout = new KeyLayout('lock');

/** Returns the server's time, in ms. */
export async function serverTime(admin: Redis): Promise<number> {
  const [seconds, micros] = await admin.time();
  return Number(seconds) * 1_000 + Number(micros) / 1_000;
}

/** Expires the record of a lock that is retained, or that no process renews, now instead of later. */
export async function expire(admin: Redis, key: string): Promise<void> {
  await admin.pexpire(layout.lockOf(key), 1);
}

/**
 * Resolves when the server has no record of the lock any more. Inspecting it through a backend would serve the waiters.
 */
export async function untilExpired(admin: Redis, key: string): Promise<void> {
  await until(async () => (await admin.exists(layout.lockOf(key))) === 0, `"${key}" has expired`);
}

export const RELEASE = { keepFor: 0, failed: false };

/**
 * Resolves when `count` attempts of this backend have been reported as waiting. The length of the queue proves less:
 * the reply may still be in flight, and a handoff or a cut would overtake it.
 */
export async function untilWaiting({ events }: StartedBackend, count = 1): Promise<void> {
  await until(
    () => events.filter(({ type }) => type === 'waiting').length >= count,
    `${count} are reported as waiting`,
  );
}

/** Resolves when the server counts `count` waiters of a key. */
export async function waitersAre(
  observer: { inspect(key: string): Promise<{ readonly waiters: number | null } | null> },
  key: string,
  count: number,
): Promise<void> {
  await until(async () => (await observer.inspect(key))?.waiters === count, `${count} wait for "${key}"`);
}

/** Checks whether a promise has settled. */
export async function isSettled(promise: PromiseLike<unknown>): Promise<boolean> {
  const pending = Symbol();
  const first = await Promise.race([promise, new Promise((resolve) => setImmediate(resolve, pending))]).catch(
    () => undefined,
  );
  return first !== pending;
}

/** Returns the first result of `ask` other than "unknown", and retries while the backend is unavailable. */
export async function untilAnswered<T>(ask: () => Promise<T>, within = TIMEOUT): Promise<T> {
  let answer: T | undefined;
  let cause: unknown;
  const isAnswered = async () => {
    try {
      answer = await ask();
    } catch (error) {
      if (!(error instanceof LockUnavailableError)) throw error;
      cause = error;
      return false;
    }
    return !(answer === 'unknown' || (Array.isArray(answer) && answer.includes('unknown')));
  };
  await until(isAnswered, 'there is an answer', within, () => cause);
  return answer as T;
}

export const COUNTER = 'lock:{0}';
export const LOCK = 'lock:{1}:k';
export const HERE = 'aaaaaaaaaaaa';
export const THERE = 'bbbbbbbbbbbb';

export type Operation = readonly [code: string, holder: string, ms: number];

/** Runs the script without a backend: one call of `process` with these operations, all on {@link LOCK}. */
export function callScript(redis: Redis, process: string, operations: readonly Operation[]): Promise<unknown> {
  const locks = operations.map(() => LOCK);
  return redis.eval(LOCK_SCRIPT.text, 1 + operations.length, COUNTER, ...locks, process, ...operations.flat());
}
