import type { BackendContext } from '../../lib/api/lock-provider.js';
import { ZooKeeperLockProvider, type ZooKeeperLockProviderOptions } from '../../lib/providers/zookeeper/index.js';
import type { ZooKeeperBackend } from '../../lib/providers/zookeeper/zookeeper-backend.js';
import { contextFor } from '../backend-context.js';
import { type DirectBackend, direct, type TestEvent } from '../direct-backend.js';
import { startZooKeeper, type ZooKeeperServer } from '../servers/zookeeper-server.mjs';
import { until } from '../until.js';
import { ZooKeeperAdmin } from './zookeeper-admin.js';

export { granted, request, type TestGrant, type TestRequest } from '../direct-backend.js';
export { until };

// A test that fails halfway must not leave connections that keep Jest from exiting.
const started = new Set<ZooKeeperBackend>();
afterAll(async () => {
  await Promise.all([...started].map((backend) => backend.close()));
});

/** A server for the tests of one `describe`, and an admin that inspects it without a provider. */
export function zooKeeperForTests(): { readonly server: ZooKeeperServer; readonly admin: ZooKeeperAdmin } {
  let server!: ZooKeeperServer;
  let admin!: ZooKeeperAdmin;
  beforeAll(async () => {
    server = await startZooKeeper();
    admin = await ZooKeeperAdmin.connect(server.connectString);
  }, 60_000);
  afterAll(async () => {
    admin.close();
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

/** A connected backend and its events. */
export interface StartedBackend {
  readonly backend: DirectBackend<ZooKeeperBackend>;
  readonly events: TestEvent[];
}

/** Connects a backend. Each backend is a separate process to ZooKeeper. */
export async function startBackend(
  options: ZooKeeperLockProviderOptions,
  context: Partial<BackendContext> = {},
): Promise<StartedBackend> {
  const events: TestEvent[] = [];
  const made = new ZooKeeperLockProvider(options).createBackend(contextFor(events, context)) as ZooKeeperBackend;
  const backend = direct(made, events);
  started.add(made);
  await backend.connect();
  return { backend, events };
}

/** Resolves when `count` attempts of this backend are queued. */
export async function untilWaiting({ events }: Pick<StartedBackend, 'events'>, count = 1): Promise<void> {
  await until(() => events.filter(({ type }) => type === 'waiting').length >= count, `${count} are queued`);
}
