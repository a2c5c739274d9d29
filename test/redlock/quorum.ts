import { Redis } from 'ioredis';
import { type Clock } from '../../lib/api/clock.js';
import { systemClock } from '../../lib/core/toolkit/clock.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import type { BackendContext } from '../../lib/api/lock-provider.js';
import { silentLogger } from '../../lib/api/logger.js';
import { RedlockLockProvider, type RedlockLockProviderOptions } from '../../lib/providers/redlock/index.js';
import type { RedlockBackend } from '../../lib/providers/redlock/redlock-backend.js';
import { RedlockKeyLayout } from '../../lib/providers/redlock/key-layout.js';
import type { FakeClock } from '../../lib/testing/index.js';
import { type DirectBackend, direct, type TestEvent } from '../direct-backend.js';
import { IOREDIS } from '../redis/client-libraries.js';
import { contextFor } from '../redis/seam.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';

/** Independent servers, each with an admin client of the test. */
export interface Quorum {
  readonly servers: readonly RedisServer[];
  readonly admins: readonly Redis[];
  /** All servers as `nodes`. */
  readonly nodes: readonly { readonly url: string }[];
  /** Returns how many nodes have a vote for this key. */
  votes(key: string, namespace?: string): Promise<number>;
  /** Expires the votes for this key now instead of later. */
  expire(key: string, namespace?: string): Promise<void>;
  /** Returns how many times this node has run a script since RESETSTAT. */
  calls(node: number): Promise<number>;
  /** Deletes everything on all nodes. */
  flush(): Promise<void>;
  stop(): Promise<void>;
}

export async function startQuorum(size: number, options: Parameters<typeof startRedisServer>[0] = {}): Promise<Quorum> {
  const servers = await Promise.all(Array.from({ length: size }, () => startRedisServer(options)));
  const admins = servers.map(({ url }) => {
    const admin = new Redis(url, { retryStrategy: () => 20 });
    admin.on('error', () => undefined);
    return admin;
  });
  // A test that counts connections must not see these open later.
  await Promise.all(admins.map((admin) => admin.ping()));
  return {
    servers,
    admins,
    nodes: servers.map(({ url }) => ({ url })),
    async votes(key, namespace = 'lock') {
      const name = new RedlockKeyLayout(namespace).lockOf(key);
      const counts = await Promise.all(admins.map((admin) => admin.exists(name)));
      return counts.reduce((sum, count) => sum + count, 0);
    },
    async expire(key, namespace = 'lock') {
      const name = new RedlockKeyLayout(namespace).lockOf(key);
      await Promise.all(admins.map((admin) => admin.pexpire(name, 1)));
    },
    async calls(node) {
      const stats = await admins[node]!.info('commandstats');
      const counts = [...stats.matchAll(/cmdstat_(?:eval|evalsha|ping):calls=(\d+)/g)];
      return counts.reduce((sum, [, count]) => sum + Number(count), 0);
    },
    async flush() {
      await Promise.all(admins.map((admin) => admin.flushall()));
    },
    async stop() {
      for (const admin of admins) admin.disconnect();
      await Promise.all(servers.map((server) => server.stop()));
    },
  };
}

/** Starts a wire to each server. */
export async function wiresTo(
  quorum: Quorum,
  library = IOREDIS,
): Promise<{ wires: readonly TcpProxy[]; nodes: RedlockLockProviderOptions['nodes'] }> {
  const wires = await Promise.all(quorum.servers.map(({ port }) => startTcpProxy(port)));
  return { wires, nodes: wires.map(({ port }) => library.server(`redis://127.0.0.1:${port}`)) };
}

// A test that fails halfway must not leave connections that keep Jest from exiting.
const closing = new Set<() => Promise<unknown>>();
afterAll(() => Promise.all([...closing].map((close) => close())));

// A slow node must not lose its connection. A vote must arrive within a tenth of the lease, so leases may be long.
const TERMS = { maxLease: '10m', commandTimeout: '10s' } as const;

export interface StartedRedlock {
  readonly backend: DirectBackend<RedlockBackend>;
  readonly events: TestEvent[];
}

/** Picks the provider's options, since callers also pass a whole quorum. */
function providerOf(
  options: Partial<RedlockLockProviderOptions> & Pick<RedlockLockProviderOptions, 'nodes'>,
): RedlockLockProvider {
  const { nodes, maxLease, delayedRestart, commandTimeout } = { delayedRestart: undefined, ...TERMS, ...options };
  return new RedlockLockProvider({ nodes, maxLease, delayedRestart, commandTimeout });
}

/** Starts a backend without the core. To Redis, each one is a separate process. */
export async function startRedlock(
  options: Partial<RedlockLockProviderOptions> & Pick<RedlockLockProviderOptions, 'nodes'>,
  context: Partial<BackendContext> = {},
): Promise<StartedRedlock> {
  const events: TestEvent[] = [];
  const backend = direct(
    providerOf(options).createBackend(contextFor(events, { name: 'redlock', ...context })) as RedlockBackend,
    events,
  );
  closing.add(() => backend.close());
  await backend.connect();
  return { backend, events };
}

/** Starts a process with the core. */
export async function startLocks(
  options: Partial<RedlockLockProviderOptions> & Pick<RedlockLockProviderOptions, 'nodes'>,
  clock: Clock = systemClock,
): Promise<LockManager> {
  const locks = new LockManager({
    providers: { redlock: providerOf(options) },
    shutdownGrace: 0,
    logger: silentLogger,
    clock,
  });
  closing.add(() => locks.stop());
  await locks.start();
  return locks;
}

/**
 * Advances the process's clock by `milliseconds`, in steps. After each step, all nodes have executed what the process
 * has sent.
 */
export async function pass({ admins }: Quorum, time: FakeClock, milliseconds: number): Promise<void> {
  const STEP = 50;
  for (let passed = 0; passed < milliseconds; passed += STEP) {
    await time.advance(STEP);
    await Promise.all(admins.map((admin) => admin.time()));
  }
}
