import { afterAll } from '@jest/globals';
import type { AcquireRequest, BackendContext, BackendEvent, Grant } from '../../lib/api/lock-provider.js';
import { systemRandom } from '../../lib/core/toolkit/random.js';
import { ZooKeeperLockProvider, type ZooKeeperLockProviderOptions } from '../../lib/providers/zookeeper/index.js';
import type { ZooKeeperBackend } from '../../lib/providers/zookeeper/zookeeper-backend.js';
import { contextFor } from '../backend-context.js';

const random = systemRandom();

// A test that fails half-way must not leave connections that keep Jest from ending.
const started = new Set<ZooKeeperBackend>();
afterAll(async () => {
  await Promise.all([...started].map((backend) => backend.close()));
});

/** A backend that is connected, and its events. */
export interface StartedBackend {
  readonly backend: ZooKeeperBackend;
  readonly events: BackendEvent[];
}

/** Connects a backend: to ZooKeeper, each one is a process of its own. */
export async function startBackend(
  options: ZooKeeperLockProviderOptions,
  context: Partial<BackendContext> = {},
): Promise<StartedBackend> {
  const events: BackendEvent[] = [];
  const backend = new ZooKeeperLockProvider(options).createBackend(contextFor(events, context));
  started.add(backend);
  await backend.connect();
  return { backend, events };
}

/** One attempt, and the way to abort it. */
export interface TestRequest extends AcquireRequest {
  abort(): void;
}

/** An attempt to acquire `key`; waits for 60 s unless it is aborted. */
export function request(key: string, terms: Partial<AcquireRequest> = {}): TestRequest {
  const controller = new AbortController();
  return {
    key,
    holder: random.id(),
    mode: 'exclusive',
    lease: 30_000,
    renew: true,
    minHold: 0,
    wait: 60_000,
    age: 0,
    callers: 1,
    signal: controller.signal,
    abort: () => {
      controller.abort();
    },
    ...terms,
  };
}

/** The grant in an answer that must be one. */
export function granted(answer: Grant | 'busy'): Grant {
  if (answer === 'busy') throw new Error('Expected a grant, and it was busy.');
  return answer;
}

/** How long a test waits, in ms. A condition takes milliseconds, and seconds on a busy machine. Only a hang takes longer. */
const TIMEOUT = 15_000;

/** Resolves when `condition` holds; looks often, and fails after `within` ms. */
export async function until(
  condition: () => boolean | Promise<boolean>,
  what: string,
  within = TIMEOUT,
): Promise<void> {
  for (const end = Date.now() + within; Date.now() < end;) {
    if (await condition()) return;
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  throw new Error(`Waited ${within} ms in vain until ${what}.`);
}

/** Resolves when `count` attempts of this backend are queued. */
export async function untilWaiting({ events }: Pick<StartedBackend, 'events'>, count = 1): Promise<void> {
  await until(() => events.filter(({ type }) => type === 'waiting').length >= count, `${count} are queued`);
}
