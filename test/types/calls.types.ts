// Compiled by `npm run typecheck`, never executed.
import type { ContentionTrace } from '../../lib/api/lock-traces.js';
import type { ListedJob, LockAdmin, LockContention, LockService, WaitSum } from '../../lib/index.js';
import { lockKey } from '../../lib/key/key-tag.js';

declare const locks: LockService;

// LockService
export async function service(): Promise<number> {
  await using lock = await locks.acquire('a', { wait: '500ms' });
  const maybe = await locks.tryAcquire(['a', 'b']);
  // @ts-expect-error: the result is null while the lock is busy
  maybe.assertHeld();
  // @ts-expect-error: a key is not a number
  void locks.acquire(1);
  locks.events.on('lost', ({ reason, key }) => `${reason} ${key}`);
  // @ts-expect-error: a string duration needs a unit
  void locks.acquire('a', { wait: '5' });
  // @ts-expect-error: no such event
  locks.events.on('gone', () => undefined);
  return await locks.withLock('b', ({ fencingToken }) => (lock.isHeld() && fencingToken !== null ? 1 : 2));
}

// runOnce() runs once per due time, or at most once per minHold.
export async function runs(): Promise<number | undefined> {
  await locks.runOnce('a', () => 1, { minHold: '1m', maxHold: '1h' });
  const result = await locks.runOnce('a', ({ signal }) => (signal.aborted ? 1 : 2), { due: new Date(), maxHold: '1h' });
  // @ts-expect-error: "due" and "minHold" are mutually exclusive
  void locks.runOnce('a', () => 1, { due: new Date(), minHold: '1m' });
  // @ts-expect-error: neither "due" nor "minHold"
  void locks.runOnce('a', () => 1, { maxHold: '1h' });
  // @ts-expect-error: a due time is a Date
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

declare const admin: LockAdmin;

declare const trace: ContentionTrace;

const rows: LockContention[] = admin.contention();

for (const { template, provider, queue, holder, unknown, instances } of rows) {
  const names: readonly (string | null)[] = [template, provider, ...instances.map(({ instance }) => instance)];
  const sums: readonly WaitSum[] = [queue, holder, unknown, ...instances];
  console.log(names, sums);
  // @ts-expect-error: the sums are read-only
  holder.waits = 0;
}

const cause: 'holder' | 'queue' | 'unknown' = trace.blockedBy;

// @ts-expect-error: the profile covers the whole process
admin.contention('order:#{id}');

console.log(cause);

// @ts-expect-error: a key cannot contain an object
void lockKey`order:${{ id: 1 }}`;

// @ts-expect-error: a key value must not be undefined
void lockKey`order:${undefined as string | undefined}`;
