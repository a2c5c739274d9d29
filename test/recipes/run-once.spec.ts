import { LockBusyError, LockUnavailableError } from '../../lib/api/errors.js';
import { LockService } from '../../lib/nest/service/lock.service.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import type { RunOnceOptions } from '../../lib/recipes/run-once.js';
import { deferred, startManager } from '../core/manager-rig.js';
import { ScriptedProvider } from '../core/scripted-provider.js';

async function fleet() {
  const store = new MemoryStore();
  const one = await startManager({ provider: new MemoryLockProvider({ store }) });
  const other = await startManager({ provider: new MemoryLockProvider({ store }), clock: one.clock });
  return { ...one, one: new LockService(one.locks), other: new LockService(other.locks), skipped: other.names };
}

it('runs the job in the first process and returns its value', async () => {
  const { one, other, skipped } = await fleet();
  const end = deferred<string>();
  const first = one.runOnce('report', () => end.promise, { minHold: 0 });
  await expect(other.runOnce('report', () => 'never', { minHold: 0 })).resolves.toEqual({ ran: false });
  expect(skipped()).toEqual(['busy', 'skipped']);
  end.resolve('done');
  await expect(first).resolves.toEqual({ ran: true, value: 'done' });
});

it('does not run again before `minHold` has passed, even if the job ended or failed', async () => {
  const { one, other, clock } = await fleet();
  const options: RunOnceOptions = { minHold: '1m' };
  await expect(one.runOnce('report', () => Promise.reject(new Error('its own')), options)).rejects.toThrow('its own');
  await clock.advance(59_000);
  await expect(other.runOnce('report', () => 2, options)).resolves.toEqual({ ran: false });
  await clock.advance(1_000);
  await expect(other.runOnce('report', () => 2, options)).resolves.toEqual({ ran: true, value: 2 });
});

it('retains none of several keys if one is busy, because the job did not run', async () => {
  const { one, other, clock } = await fleet();
  const options: RunOnceOptions = { minHold: '1h' };
  const busy = await other.acquire('invoices');
  await expect(one.runOnce(['billing', 'invoices'], () => 1, options)).resolves.toEqual({ ran: false });
  await busy.release();
  await expect(one.isLocked('billing')).resolves.toBe(false);
  await expect(other.runOnce(['billing', 'invoices'], () => 2, options)).resolves.toEqual({ ran: true, value: 2 });
  await clock.advance(3_599_000);
  await expect(one.isLocked('billing')).resolves.toBe(true);
});

it('ends the lock when a run exceeds `maxHold`', async () => {
  const { one, other, clock } = await fleet();
  const options: RunOnceOptions = { minHold: 0, maxHold: '1m' };
  const end = deferred();
  const signals: AbortSignal[] = [];
  const first = one.runOnce(
    'report',
    (lock) => {
      signals.push(lock.signal);
      return end.promise;
    },
    options,
  );
  await clock.advance(60_000);
  expect(signals[0]?.aborted).toBe(true);
  await expect(other.runOnce('report', () => 2, options)).resolves.toEqual({ ran: true, value: 2 });
  end.resolve();
  await expect(first).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'max-hold' });
});

it("does not mistake another key's LockBusyError for its own", async () => {
  const { one, other } = await fleet();
  const lock = await other.acquire('row');
  const job = one.runOnce('report', () => one.withLock('row', () => 1, { wait: 0 }), { minHold: 0 });
  await expect(job).rejects.toThrow(LockBusyError);
  await lock.release();
});

it('runs nowhere while the backend is down', async () => {
  const provider = new ScriptedProvider();
  const { locks, clock } = await startManager({ provider });
  let runs = 0;
  const job = new LockService(locks).runOnce('report', () => (runs += 1), { minHold: 0 });
  const outcome = expect(job).rejects.toThrow(LockUnavailableError);
  await clock.advance(5_000);
  await outcome;
  expect(runs).toBe(0);
});

it.each<[string, unknown]>([
  ['no options', undefined],
  ['no minHold', { maxHold: '1m' }],
])('rejects %s and suggests the line to write', async (_, options) => {
  const { one } = await fleet();
  await expect(one.runOnce('report', () => 1, options as RunOnceOptions)).rejects.toThrow(
    /^runOnce\(\) is missing "minHold".*write locks\.runOnce\('report', task, \{ minHold: '1m' \}\)/,
  );
});

it('rejects a misspelled option instead of ignoring it', async () => {
  const { one } = await fleet();
  const options = { minHold: 0, maxhold: '1m' } as RunOnceOptions;
  await expect(one.runOnce('report', () => 1, options)).rejects.toThrow(
    'there is no option "maxhold": write "maxHold"',
  );
});

it.each<[string, RunOnceOptions]>([
  [`"minHold" is '25d', but must be a duration of 0 ms to 24.8 days`, { minHold: '25d' }],
  [`"maxHold" is '25d', but must be a duration of 1 ms to 24.8 days, or Infinity`, { minHold: 0, maxHold: '25d' }],
  [`"minHold" is 60000 ms, which exceeds "maxHold" (1000 ms)`, { minHold: '1m', maxHold: '1s' }],
])('rejects invalid durations: %s', async (message, options) => {
  const { one } = await fleet();
  await expect(one.runOnce('report', () => 1, options)).rejects.toThrow(message);
});

it("runs on the service's provider, even if the `provider` option is undefined", async () => {
  const { locks } = await startManager({
    providers: { main: new MemoryLockProvider(), side: new MemoryLockProvider() },
    default: 'main',
  });
  const side = new LockService(locks).via('side');
  const options: RunOnceOptions = { minHold: 0, provider: undefined };
  await expect(side.runOnce('report', ({ provider }) => provider, options)).resolves.toMatchObject({ value: 'side' });
});

describe('isLocked', () => {
  it('returns whether any process holds or retains a key', async () => {
    const { one, other, clock } = await fleet();
    await expect(one.isLocked('order:42')).resolves.toBe(false);
    const lock = await other.acquire('order:42', { minHold: '1m' });
    await expect(one.isLocked('order:42')).resolves.toBe(true);
    await lock.release();
    await expect(one.isLocked('order:42')).resolves.toBe(true);
    await clock.advance(60_000);
    await expect(one.isLocked('order:42')).resolves.toBe(false);
  });

  it("queries the service's provider", async () => {
    const { locks } = await startManager({
      providers: { main: new MemoryLockProvider(), side: new MemoryLockProvider() },
      default: 'main',
    });
    const service = new LockService(locks);
    await service.via('side').acquire('order:42');
    await expect(service.isLocked('order:42')).resolves.toBe(false);
    await expect(service.via('side').isLocked('order:42')).resolves.toBe(true);
  });

  it('rejects if the provider does not support it', async () => {
    const { locks } = await startManager({ provider: new ScriptedProvider() });
    await expect(new LockService(locks).isLocked('order:42')).rejects.toThrow(
      /"main" does not support inspect\(\), isLocked\(\) and leader\(\)/,
    );
  });
});
