import { afterEach, beforeEach, describe, expect, it, jest } from '@jest/globals';
import { setTimeout as sleep } from 'node:timers/promises';
import type { AcquireRequest } from '../../lib/engine/lock-provider.js';
import { LockTable } from '../../lib/providers/memory/lock-table.js';
import { conformanceCases } from '../../lib/testing/index.js';
import { AdmitsEverybody } from './broken/holds.js';
import { DistantMemoryProvider, MemoryBackend } from './memory-backend.js';

// More than the kit allows for one attempt.
const TOO_LONG = 400;

/** Keeps all of this process from running. */
function standStill(): void {
  for (const end = performance.now() + TOO_LONG; performance.now() < end;);
}

/** Case #12, "with a wait of 0 a busy key is answered at once", with what happens at each attempt. */
async function play(Provider: typeof DistantMemoryProvider, onAttempt: (attempt: number) => unknown): Promise<void> {
  let attempts = 0;
  class Disturbed extends Provider {
    override async acquire(request: AcquireRequest) {
      if (request.wait <= 0) await onAttempt((attempts += 1));
      return super.acquire(request);
    }
  }
  const backend = new MemoryBackend(new LockTable());
  const create = () => new Disturbed(backend.table);
  await conformanceCases({ ...backend.harness(), create })
    .find(({ id }) => id === '#12')
    ?.run();
}

describe('a case of the kit that fails', () => {
  let warnings: string[];
  beforeEach(() => {
    warnings = [];
    jest.spyOn(process, 'emitWarning').mockImplementation((warning) => void warnings.push(String(warning)));
  });
  afterEach(() => {
    jest.restoreAllMocks();
  });

  it('by its time, while this process stood still, is played again, and says so', async () => {
    await play(DistantMemoryProvider, (attempt) => attempt === 1 && standStill());
    expect(warnings).toEqual([
      expect.stringMatching(/^Case #12 was too late while this process stood still for \d{3,} ms/),
    ]);
  });

  it('by its time, and nothing stood still, has failed', async () => {
    await expect(play(DistantMemoryProvider, (attempt) => attempt === 1 && sleep(TOO_LONG))).rejects.toThrow(
      'one attempt: ',
    );
    expect(warnings).toEqual([]);
  });

  it('otherwise than by its time has failed, whatever stood still', async () => {
    await expect(play(AdmitsEverybody, (attempt) => attempt === 1 && standStill())).rejects.toThrow();
    expect(warnings).toEqual([]);
  });

  it('again and again has failed', async () => {
    await expect(play(DistantMemoryProvider, standStill)).rejects.toThrow('one attempt: ');
    expect(warnings).toHaveLength(2);
  });
});
