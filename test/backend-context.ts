import type { BackendContext, LockCapabilities, LockProvider } from '../lib/api/lock-provider.js';
import { silentLogger } from '../lib/api/logger.js';
import { systemClock } from '../lib/core/toolkit/clock.js';
import { systemRandom } from '../lib/core/toolkit/random.js';
import type { TestEvent } from './direct-backend.js';

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
