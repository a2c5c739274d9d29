// Compiled by `npm run typecheck`, never run.
import type { ListedJob, LockAdmin, LockService } from '../../lib/index.js';

declare const locks: LockService;

// The service, typed.
export async function service(): Promise<number> {
  await using lock = await locks.acquire('a', { wait: '500ms' });
  const maybe = await locks.tryAcquire(['a', 'b']);
  // @ts-expect-error: null is busy
  maybe.assertHeld();
  // @ts-expect-error: no number is a key
  void locks.acquire(1);
  locks.events.on('lost', ({ reason, key }) => `${reason} ${key}`);
  // @ts-expect-error: text without a unit is no duration
  void locks.acquire('a', { wait: '5' });
  // @ts-expect-error: no such event
  locks.events.on('gone', () => undefined);
  return await locks.withLock('b', ({ fencingToken }) => (lock.isHeld() && fencingToken !== null ? 1 : 2));
}

// A run is once for each due time, or at most once in some time.
export async function runs(): Promise<number | undefined> {
  await locks.runOnce('a', () => 1, { minHold: '1m', maxHold: '1h' });
  const result = await locks.runOnce('a', ({ signal }) => (signal.aborted ? 1 : 2), { due: new Date(), maxHold: '1h' });
  // @ts-expect-error: they exclude each other
  void locks.runOnce('a', () => 1, { due: new Date(), minHold: '1m' });
  // @ts-expect-error: none of the two
  void locks.runOnce('a', () => 1, { maxHold: '1h' });
  // @ts-expect-error: a time is a Date
  void locks.runOnce('a', () => 1, { due: Date.now() });
  locks.events.on('skipped', ({ reason }) => (reason === 'overlap' ? 1 : 2));
  // @ts-expect-error: no such reason
  locks.events.on('skipped', ({ reason }) => reason === 'late');
  locks.events.on('run-missed', ({ key, tick, schedule }) => `${key} ${schedule} ${tick.toISOString()}`);
  locks.events.on('run-abandoned', ({ again, startedAt }) => (again ? startedAt.getTime() : 0));
  return result.ran ? result.value : undefined;
}

export async function jobs(admin: LockAdmin): Promise<ListedJob[]> {
  const all: ListedJob[] = [];
  for await (const job of admin.jobs()) if (job.state === 'running' && job.endedAt === null) all.push(job);
  return all;
}
