// A process with 64 callers that repeatedly acquire and release a lock each. The library's tables are either unchanged
// or each replaced by a `Map`. It runs with `--single-threaded-gc`, so that all garbage collection pauses its single
// thread.
import { PerformanceObserver } from 'node:perf_hooks';
import { Redis } from 'ioredis';
import { HolderTable } from '../../dist/core/toolkit/holder-table.js';
import { LockManager } from '../../dist/index.js';
import { RedisLockProvider } from '../../dist/providers/redis/index.js';
import { manyKeys } from '../loads.mjs';

const [, , kind, port, milliseconds] = process.argv;
if (kind === 'map') useMaps();

const locks = new LockManager({
  providers: { redis: new RedisLockProvider({ client: new Redis(port, { lazyConnect: true }) }) },
});
await locks.start();
let cycles = 0;
const acquire = async (key) => {
  const lock = await locks.acquire(key, { wait: '60s', lease: '10s' });
  cycles += 1;
  return () => lock.release();
};
await manyKeys(acquire, Number(milliseconds) / 4);
// Age the tables, as in a process that has run for a while. Until the first full collection, a Map costs no more.
globalThis.gc();
await manyKeys(acquire, Number(milliseconds) / 4);

let pauses = 0;
const observer = new PerformanceObserver((list) => {
  for (const { duration } of list.getEntries()) pauses += duration;
});
observer.observe({ entryTypes: ['gc'] });
cycles = 0;
const before = process.cpuUsage();
await manyKeys(acquire, Number(milliseconds));
const { user, system } = process.cpuUsage(before);
// Entries are delivered in a later turn.
await new Promise((resolve) => setTimeout(resolve, 50));
process.send({ collector: (pauses * 1_000) / cycles, all: (user + system) / cycles });
await locks.stop();
process.exit();

function useMaps() {
  const mapOf = (table) => (table.map ??= new Map());
  Object.assign(HolderTable.prototype, {
    get(id) {
      return mapOf(this).get(id);
    },
    has(id) {
      return mapOf(this).has(id);
    },
    set(id, value) {
      mapOf(this).set(id, value);
    },
    delete(id) {
      return mapOf(this).delete(id);
    },
    clear() {
      mapOf(this).clear();
    },
    values() {
      return [...mapOf(this).values()];
    },
  });
  Object.defineProperty(HolderTable.prototype, 'size', {
    get() {
      return mapOf(this).size;
    },
  });
}
