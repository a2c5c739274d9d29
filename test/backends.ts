import type { BackendContext, LockBackend, LockCapabilities, LockProvider } from '../lib/api/lock-provider.js';
import { MemoryLockProvider } from '../lib/providers/memory/memory-lock-provider.js';

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
