import { afterAll } from '@jest/globals';
import type { BackendContext } from '../../lib/api/lock-provider.js';
import { ZooKeeperLockProvider, type ZooKeeperLockProviderOptions } from '../../lib/providers/zookeeper/index.js';
import type { ZooKeeperBackend } from '../../lib/providers/zookeeper/zookeeper-backend.js';
import { contextFor } from '../backend-context.js';
import { type DirectBackend, direct, type TestEvent } from '../direct-backend.js';

export { granted, request, type TestGrant, type TestRequest } from '../direct-backend.js';

// A test that fails half-way must not leave connections that keep Jest from ending.
const started = new Set<ZooKeeperBackend>();
afterAll(async () => {
  await Promise.all([...started].map((backend) => backend.close()));
});

/** A backend that is connected, and its events. */
export interface StartedBackend {
  readonly backend: DirectBackend<ZooKeeperBackend>;
  readonly events: TestEvent[];
}

/** Connects a backend: to ZooKeeper, each one is a process of its own. */
export async function startBackend(
  options: ZooKeeperLockProviderOptions,
  context: Partial<BackendContext> = {},
): Promise<StartedBackend> {
  const events: TestEvent[] = [];
  const made = new ZooKeeperLockProvider(options).createBackend(contextFor(events, context));
  const backend = direct(made, events);
  started.add(made);
  await backend.connect();
  return { backend, events };
}

/** How long a test waits, in ms. A condition takes milliseconds, and seconds on a busy machine. Only a hang takes longer. */
const TIMEOUT = 15_000;

/** Resolves when `condition` holds; looks often, and fails after `within` ms. */
export async function until(
  condition: () => boolean | Promise<boolean>,
  what: string,
  within = TIMEOUT,
): Promise<void> {
  const begun = Date.now();
  for (let waited = 0; waited < within; waited = Date.now() - begun) {
    if (await condition()) return;
    // Less often after a while: what ends with a lease would be asked hundreds of times.
    await new Promise((resolve) => setTimeout(resolve, 2 + Math.min(waited / 20, 20)));
  }
  throw new Error(`Waited ${within} ms in vain until ${what}.`);
}

/** Resolves when `count` attempts of this backend are queued. */
export async function untilWaiting({ events }: Pick<StartedBackend, 'events'>, count = 1): Promise<void> {
  await until(() => events.filter(({ type }) => type === 'waiting').length >= count, `${count} are queued`);
}
