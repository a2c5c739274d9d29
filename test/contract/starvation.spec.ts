import { afterEach, beforeEach, describe, expect, it, jest } from '@jest/globals';
import os from 'node:os';
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

/** A machine of which this share is idle. */
function machine(idle: number) {
  const [processor] = os.cpus();
  return () => {
    const now = performance.now();
    const times = { ...processor!.times, user: now * (1 - idle), nice: 0, sys: 0, irq: 0, idle: now * idle };
    return [{ ...processor!, times }];
  };
}

describe('a case of the kit that fails', () => {
  let warnings: string[];
  beforeEach(() => {
    jest.spyOn(os, 'cpus').mockImplementation(machine(0.5));
    warnings = [];
    jest.spyOn(process, 'emitWarning').mockImplementation((warning) => void warnings.push(String(warning)));
  });
  afterEach(() => {
    jest.restoreAllMocks();
  });

  it('by its time, while this process stood still, is played again, and says so', async () => {
    await play(DistantMemoryProvider, (attempt) => attempt === 1 && standStill());
    expect(warnings).toEqual([
      expect.stringMatching(/^Case #12 was too late while this machine was busy for \d{3,} ms/),
    ]);
  });

  it('by its time, while the machine had nothing to spare, is played again, and says so', async () => {
    jest.spyOn(os, 'cpus').mockImplementation(machine(0.01));
    await play(DistantMemoryProvider, (attempt) => attempt === 1 && sleep(TOO_LONG));
    expect(warnings).toEqual([
      expect.stringMatching(/^Case #12 was too late while this machine was busy for \d{3,} ms/),
    ]);
  });

  it('by its time, where nothing tells how busy the machine is, has failed', async () => {
    const nothing = { user: 0, nice: 0, sys: 0, irq: 0, idle: 0 };
    jest.spyOn(os, 'cpus').mockImplementation(() => [{ model: '', speed: 0, times: nothing }]);
    await expect(play(DistantMemoryProvider, (attempt) => attempt === 1 && sleep(TOO_LONG))).rejects.toThrow(
      'one attempt: ',
    );
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
    expect(warnings).toHaveLength(4);
  });
});
