import type { LossPolicy } from '../../lib/api/lock-options.js';
import { deferred, startManager, watch } from './manager-rig.js';
import { ScriptedProvider } from './scripted-provider.js';

async function running(onLost: LossPolicy) {
  const started = await startManager();
  const task = deferred<string>();
  const result = watch(started.locks.withLock('a', () => task.promise, { onLost }));
  await started.clock.advance(0);
  return { ...started, task, result, lose: () => started.locks.admin.forceRelease('a') };
}

describe('withLock', () => {
  it("passes on the task's result, exception or rejection, and releases", async () => {
    const { locks } = await startManager();
    const error = new Error('mine');
    expect(await locks.withLock('a', () => 1)).toBe(1);
    expect(await locks.withLock('a', async () => Promise.resolve(2))).toBe(2);
    await expect(
      locks.withLock('a', () => {
        throw error;
      }),
    ).rejects.toBe(error);
    await expect(locks.withLock('a', () => Promise.reject(error))).rejects.toBe(error);
    expect(locks.admin.held()).toEqual([]);
  });

  it.each<LossPolicy>(['throw', 'ignore'])(
    'passes on the outcome of the task with onLost "%s" if the lock was not lost',
    async (onLost) => {
      const { locks } = await startManager();
      expect(await locks.withLock('a', () => 1, { onLost })).toBe(1);
      await expect(locks.withLock('a', () => Promise.reject(new Error('mine')), { onLost })).rejects.toThrow('mine');
      expect(locks.admin.held()).toEqual([]);
    },
  );

  it('reports to the backend whether the task failed', async () => {
    const provider = ScriptedProvider.obliging();
    const failed: boolean[] = [];
    provider.onRelease = (_, options) => {
      failed.push(options.failed);
      return 'released';
    };
    const { locks } = await startManager({ provider });
    await locks.withLock('a', () => undefined);
    await locks.withLock('a', () => Promise.reject(new Error('mine'))).catch(() => undefined);
    expect(failed).toEqual([false, true]);
  });

  it.each(['throw', 'reject', 'unknown'] as const)(
    "keeps the task's value and error if the release fails (%s)",
    async (how) => {
      const provider = ScriptedProvider.obliging();
      provider.onRelease = () => {
        if (how === 'throw') throw new Error('release');
        return how === 'reject' ? Promise.reject(new Error('release')) : Promise.resolve('unknown');
      };
      const { locks } = await startManager({ provider });
      expect(await locks.withLock('a', () => 1)).toBe(1);
      await expect(locks.withLock('a', () => Promise.reject(new Error('mine')))).rejects.toThrow('mine');
    },
  );

  it("throws the loss after the task ends, with the task's outcome", async () => {
    const { task, result, lose, clock } = await running('throw');
    await lose();
    await clock.advance(0);
    expect(result.state).toBe('pending');
    task.resolve('value');
    await clock.advance(0);
    expect(result.error).toMatchObject({
      code: 'LOCK_LOST',
      reason: 'revoked',
      outcome: { status: 'fulfilled', value: 'value' },
    });
  });

  it("throws the loss with the task's error", async () => {
    const { task, result, lose, clock } = await running('throw');
    await lose();
    const reason = new Error('mine');
    task.reject(reason);
    await clock.advance(0);
    expect(result.error).toMatchObject({ outcome: { status: 'rejected', reason } });
  });

  it('throws a loss that only the release detected', async () => {
    const provider = ScriptedProvider.obliging();
    provider.onRelease = () => Promise.resolve('lost');
    const { locks } = await startManager({ provider });
    await expect(locks.withLock('a', () => 1)).rejects.toMatchObject({
      reason: 'revoked',
      outcome: { status: 'fulfilled', value: 1 },
    });
  });

  it('ignores the loss with onLost "ignore"', async () => {
    const { task, result, lose, clock } = await running('ignore');
    await lose();
    task.resolve('value');
    await clock.advance(0);
    expect(result.value).toBe('value');
  });

  it('passes the lock to the task and makes it current', async () => {
    const { locks } = await startManager();
    await locks.withLock('a', async (lock) => {
      await Promise.resolve();
      expect(locks.current()).toBe(lock);
      expect(lock.acquiredAt).toBeInstanceOf(Date);
    });
  });

  it('does not run the task without the lock', async () => {
    const { locks } = await startManager();
    await locks.acquire('a');
    let ran = false;
    await expect(locks.withLock('a', () => void (ran = true), { wait: 0 })).rejects.toMatchObject({
      code: 'LOCK_BUSY',
    });
    expect(ran).toBe(false);
  });
});

it('a task does not start under a lock that was lost after its grant', async () => {
  for (let turns = 0; turns < 12; turns += 1) {
    const { locks, clock } = await startManager();
    let started: boolean | undefined;
    const result = watch(locks.withLock('a', (lock) => (started = lock.isHeld())));
    for (let turn = 0; turn < turns; turn += 1) await Promise.resolve();
    await locks.admin.forceRelease('a');
    await clock.advance(1_000);
    expect(result.state).not.toBe('pending');
    expect(started).not.toBe(false);
    await locks.stop();
  }
});
