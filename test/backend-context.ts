import { silentLogger } from '../lib/api/logger.js';
import { systemClock } from '../lib/core/toolkit/clock.js';
import { systemRandom } from '../lib/core/toolkit/random.js';
import type { TestEvent } from './direct-backend.js';
import type { BackendContext, LockBackend, LockCapabilities, LockProvider } from '../lib/api/lock-provider.js';
import { MemoryLockProvider } from '../lib/providers/memory/memory-lock-provider.js';

const random = systemRandom();

/** What the core would give to a backend; its events go into `events`. */
export function contextFor(events: TestEvent[] = [], parts: Partial<BackendContext> = {}): BackendContext {
  return {
    name: 'main',
    namespace: 'lock',
    instance: { id: '0123456789ab', name: 'host:1' },
    clock: systemClock,
    random,
    logger: silentLogger,
    emit: (event) => events.push(event),
    member: (name) => {
      throw new Error(`This test has no member "${name}".`);
    },
    ...parts,
  };
}

/** What the backends of this provider can do. */
export function capabilitiesOf(provider: LockProvider): LockCapabilities {
  return provider.createBackend(contextFor()).capabilities;
}

/** A provider of backends that a test makes itself. */
export function providerOf<B extends LockBackend>(
  create: (context: BackendContext) => B,
  members: readonly string[] = [],
): LockProvider & { createBackend(context: BackendContext): B } {
  return { members, createBackend: create };
}

/** Memory with other capabilities, of which it counts how often backends are connected and closed. */
export class CountingProvider extends MemoryLockProvider {
  starts = 0;
  stops = 0;
  protected readonly capabilities: Partial<LockCapabilities> = {};

  override createBackend(context: BackendContext) {
    const backend = super.createBackend(context);
    const [connect, close] = [backend.connect.bind(backend), backend.close.bind(backend)];
    return Object.assign(backend, {
      capabilities: { ...backend.capabilities, ...this.capabilities },
      connect: () => {
        this.starts += 1;
        return connect();
      },
      close: () => {
        this.stops += 1;
        return close();
      },
    });
  }
}
