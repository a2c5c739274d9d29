import { getEventListeners } from 'node:events';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { LockManager } from '../../lib/core/lock-manager.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { exploration } from '../exploration.js';
import { BACKENDS, startManager } from './manager-rig.js';
import { ScriptedProvider } from './scripted-provider.js';
import { compileLibrary, type CompiledLibrary } from '../servers/compiled-library.js';

const ROUNDS = exploration(2_000, 20_000);

describe.each(BACKENDS)('nothing is left (%s backend)', (_, provide) => {
  it(`after ${ROUNDS} acquires and releases`, async () => {
    const table = new MemoryStore();
    const { locks, clock } = await startManager({ provider: provide(table) });
    for (let round = 0; round < ROUNDS; round += 1) {
      await locks.withLock(`key ${round % 7}`, (lock) => lock.signal);
    }
    expect([clock.pendingTimers, table.size, locks.admin.held(), locks.admin.waiting()]).toEqual([0, 0, [], []]);
  });

  it(`after ${ROUNDS} waits that were cancelled`, async () => {
    const table = new MemoryStore();
    const { locks, clock } = await startManager({ provider: provide(table) });
    const listeners = new Set<unknown>();
    const controllers = Array.from({ length: ROUNDS }, () => new AbortController());
    const lock = await locks.acquire('a');
    const timersBefore = clock.pendingTimers;
    for (const { signal } of controllers) countListeners(signal, listeners);
    for (let start = 0; start < ROUNDS; start += 500) {
      const batch = controllers.slice(start, start + 500);
      const waiting = batch.map(({ signal }) => locks.acquire('a', { signal }).catch((reason: unknown) => reason));
      await clock.advance(1);
      for (const controller of batch) controller.abort('enough');
      expect(new Set(await Promise.all(waiting))).toEqual(new Set(['enough']));
    }
    await clock.advance(0);
    expect([clock.pendingTimers, listeners.size, locks.admin.waiting()]).toEqual([timersBefore, 0, []]);
    await lock.release();
    expect([clock.pendingTimers, table.size, locks.admin.held()]).toEqual([0, 0, []]);
  });
});

it('leaves no listener on a signal that did not abort', async () => {
  const { locks } = await startManager();
  const { signal } = new AbortController();
  const listeners = new Set<unknown>();
  countListeners(signal, listeners);
  await Promise.all([1, 2, 3].map(() => locks.withLock('a', () => Promise.resolve(), { signal })));
  await locks.acquire('a');
  await expect(locks.acquire('a', { signal, wait: 0 })).rejects.toMatchObject({ code: 'LOCK_BUSY' });
  expect(listeners.size).toBe(0);
});

it('puts one listener on a signal that many waiters share', async () => {
  const { locks, clock } = await startManager();
  const lock = await locks.acquire('a');
  const controller = new AbortController();
  const { signal } = controller;
  const wait = () => locks.acquire('a', { signal }).then(String, (reason: unknown) => reason);
  const early = locks.acquire('a', { signal, wait: 10 }).catch(() => 'busy');
  const waiting = Array.from({ length: 20 }, wait);
  await clock.advance(10);
  expect(await early).toBe('busy');
  expect(getEventListeners(signal, 'abort')).toHaveLength(1);
  controller.abort('enough');
  expect(new Set(await Promise.all(waiting))).toEqual(new Set(['enough']));
  expect(getEventListeners(signal, 'abort')).toHaveLength(0);
  await lock.release();
  expect(clock.pendingTimers).toBe(0);
});

it('leaves one timer for a backend that is down for long, and nothing when it is back', async () => {
  const provider = new ScriptedProvider();
  provider.onAcquire = () => Promise.reject(new Error('down'));
  provider.onRelease = () => Promise.reject(new Error('down'));
  const { locks, clock } = await startManager({ provider });
  const waiting = [1, 2, 3].map((each) => locks.acquire('a', { wait: each * 1_000 }).catch((error: unknown) => error));
  await clock.advance(40_000);
  await Promise.all(waiting);
  // What may have reached it is released when it is back.
  expect([clock.pendingTimers, locks.admin.waiting()]).toEqual([1, []]);
  provider.onRelease = () => 'lost';
  provider.context.emit({ type: 'recovered' });
  await clock.advance(1_000);
  expect(clock.pendingTimers).toBe(0);
});

it('leaves no timer and no handle of this process', async () => {
  const before = process.getActiveResourcesInfo();
  const locks = new LockManager({ providers: { main: new MemoryLockProvider() } });
  await locks.start();
  const lock = await locks.acquire('a');
  for (let round = 0; round < 1_000; round += 1) {
    const controller = new AbortController();
    const waiting = locks.acquire('a', { signal: controller.signal }).catch((reason: unknown) => reason);
    controller.abort('enough');
    await waiting;
    await locks.withLock(`b${round}`, () => Promise.resolve());
  }
  await lock.release();
  await locks.stop();
  expect(process.getActiveResourcesInfo()).toEqual(before);
});

/** Keeps in `listeners` those that are on the signal now. */
function countListeners(signal: AbortSignal, listeners: Set<unknown>): void {
  const { addEventListener, removeEventListener } = signal;
  signal.addEventListener = (...args: Parameters<typeof addEventListener>) => {
    listeners.add(args[1]);
    addEventListener.apply(signal, args);
  };
  signal.removeEventListener = (...args: Parameters<typeof removeEventListener>) => {
    listeners.delete(args[1]);
    removeEventListener.apply(signal, args);
  };
}

const run = promisify(execFile);

// Whether a process ends is seen in a process alone.
describe('a process that has nothing else to do', () => {
  let library: CompiledLibrary;
  beforeAll(async () => {
    library = await compileLibrary();
  });
  afterAll(() => library.remove());

  const program = (body: string) => {
    const manager = join(library.folder, 'core/lock-manager.js');
    const memory = join(library.folder, 'providers/memory/memory-lock-provider.js');
    const source = `
      import { LockManager } from '${manager}';
      import { MemoryLockProvider } from '${memory}';
      const locks = new LockManager({ providers: { memory: new MemoryLockProvider() }, shutdownGrace: 50 });
      await locks.start();
      ${body}`;
    return run(process.execPath, ['--input-type=module', '--eval', source]);
  };

  it('ends while it holds a lock in memory, which ends with it: no timer of ours keeps it alive', async () => {
    const { stdout } = await program(`await locks.acquire('a'); console.log('held');`);
    expect(stdout).toBe('held\n');
  });

  it('does not end while a caller waits for a lock', async () => {
    const { stdout } = await program(`
      await locks.acquire('a');
      const error = await locks.acquire('a', { wait: '100ms' }).catch((reason) => reason);
      console.log(error.code);`);
    expect(stdout).toBe('LOCK_BUSY\n');
  });

  it('does not end before the hold ends that a caller without a deadline waits for', async () => {
    const { stdout } = await program(`
      await locks.acquire('a', { maxHold: 200 });
      await locks.acquire('a', { wait: Infinity });
      console.log('granted');`);
    expect(stdout).toBe('granted\n');
  });

  it('does not end while a caller waits for a backend that does not answer', async () => {
    const { stdout } = await program(`
      class Down extends MemoryLockProvider {
        createBackend(context) {
          const acquire = () => Promise.reject(new Error('down'));
          return Object.assign(super.createBackend(context), { acquire });
        }
      }
      const others = new LockManager({ providers: { down: new Down() } });
      await others.start();
      const error = await others.acquire('a', { wait: '100ms' }).catch((reason) => reason);
      console.log(error.code);`);
    expect(stdout).toBe('LOCK_UNAVAILABLE\n');
  });

  it('does not end while it holds a lock of a server, which may be away, before that is released or lost', async () => {
    const { stdout } = await program(`
      class Away extends MemoryLockProvider {
        createBackend(context) {
          const renew = () => Promise.reject(new Error('away'));
          return Object.assign(super.createBackend(context), { renew, locksEndWithProcess: false });
        }
      }
      const others = new LockManager({ providers: { away: new Away() } });
      await others.start();
      const lock = await others.acquire('a', { lease: 200 });
      lock.signal.addEventListener('abort', () => console.log(lock.signal.reason.reason));`);
    expect(stdout).toBe('expired\n');
  });

  it('does not end in the middle of a stop', async () => {
    const { stdout } = await program(`await locks.acquire('a'); await locks.stop(); console.log('stopped');`);
    expect(stdout).toBe('stopped\n');
  });
});
