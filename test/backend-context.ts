import { silentLogger } from '../lib/api/logger.js';
import { systemClock } from '../lib/core/toolkit/clock.js';
import { systemRandom } from '../lib/core/toolkit/random.js';
import type { TestEvent } from './direct-backend.js';
import type { BackendContext, LockBackend, LockCapabilities, LockProvider } from '../lib/api/lock-provider.js';
import { MemoryLockProvider } from '../lib/providers/memory/memory-lock-provider.js';

const random = systemRandom();

/** Returns the context the core would pass to a backend. Events that the backend emits go into `events`. */
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

/** Returns the capabilities of the provider's backends. */
export function capabilitiesOf(provider: LockProvider): LockCapabilities {
  return provider.createBackend(contextFor()).capabilities;
}

/** Wraps backends that a test creates itself in a provider. */
export function providerOf<B extends LockBackend>(
  create: (context: BackendContext) => B,
  members: readonly string[] = [],
): LockProvider & { createBackend(context: BackendContext): B } {
  return { members, createBackend: create };
}

/** Memory with overridable capabilities; counts how often its backends connect and close. */
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
