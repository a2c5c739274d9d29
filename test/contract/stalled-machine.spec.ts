import type { AcquireRequest, RenewOutcome } from '../../lib/api/lock-provider.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { conformanceCases } from '../../lib/provider-kit/index.js';
import { DistantBackend, MemoryServer } from './memory-server.js';

const LEASE = 200;

/** The case of the watchdog, on the real clock. */
function watchdogCase(Backend: typeof DistantBackend) {
  const harness = { ...new MemoryServer(new MemoryStore(), Backend).harness(), lease: LEASE };
  return conformanceCases(harness).find(({ id }) => id === '#22')!;
}

it('a watchdog passes on a machine that stalls for longer than a lease', async () => {
  let stalls = 0;
  class StallsOnce extends DistantBackend {
    override async renew(request: AcquireRequest, lease: number): Promise<RenewOutcome> {
      if (stalls++ === 0) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2 * LEASE);
      return super.renew(request, lease);
    }
  }
  await watchdogCase(StallsOnce).run();
  expect(stalls).toBeGreaterThan(1);
});

it('a watchdog whose renewals have no effect does not pass, however often it is tried', async () => {
  class NeverAnswers extends DistantBackend {
    override renew(): Promise<RenewOutcome> {
      return Promise.resolve('unknown');
    }
  }
  await expect(watchdogCase(NeverAnswers).run()).rejects.toThrow('how many leases the watchdog has kept the lock for');
});
