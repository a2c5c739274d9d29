import { MemoryLockProvider } from 'nestjs-distributed-lock';
import type { Backend } from './backend.js';
import { MemoryStock } from './memory-stock.js';

/** One process, nothing to install. */
export function memory(): Backend {
  return { locks: { provider: new MemoryLockProvider() }, stock: new MemoryStock() };
}
