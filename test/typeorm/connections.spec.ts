import { setTimeout as sleep } from 'node:timers/promises';
import type { LockManager } from '../../lib/core/lock-manager.js';
import type { TypeOrmRowLockProviderOptions } from '../../lib/providers/typeorm/index.js';
import { LockProcesses, SqlBackend } from './sql-backend.js';

// A provider's default limit.
const MAX_CONNECTIONS = 10;

describe.each(['mariadb', 'postgres'] as const)('connections of locks on %s', (type) => {
  const backend = SqlBackend.forTests(type);
  const processes = new LockProcesses();
  const rows = async (options: Partial<TypeOrmRowLockProviderOptions> = {}) =>
    processes.start(await backend.provider(options));
  const advisory = async () => processes.start(await backend.advisoryProvider());

  /** Resolves when this many callers have arrived. */
  function gathering(size: number): () => Promise<void> {
    let come = 0;
    let open!: () => void;
    const all = new Promise<void>((resolve) => (open = resolve));
    return () => {
      come += 1;
      if (come === size) open();
      return all;
    };
  }

  it.each([
    ['row', rows],
    ['advisory', advisory],
  ] as const)('%s locks: ten callers that each nest two free keys all get both', async (_, start) => {
    const locks = await start();
    // As many as can have a connection at the same time, because one is reserved for nested locks.
    const gathered = gathering(MAX_CONNECTIONS - 1);
    const callers = Array.from({ length: 10 }, (_, index) =>
      locks.withLock(`outer:${index}`, async () => {
        await gathered();
        return locks.withLock(`inner:${index}`, () => index);
      }),
    );
    expect(await Promise.all(callers)).toHaveLength(10);
  });

  it.each([
    ['row', rows],
    ['advisory', advisory],
  ] as const)('%s locks: a free key is granted while callers wait for ten other keys', async (_, start) => {
    const [locks, ...others] = [await start(), await start(), await start()];
    const busy = Array.from({ length: 10 }, (_, index) => `busy:${index}`);
    const held = await Promise.all(busy.map((key, index) => others[index % 2]!.acquire(key)));
    const waiting = gathering(10);
    locks.events.on('waiting', () => void waiting());
    const waiters = busy.map((key) => locks.withLock(key, () => key));
    await waiting();
    for (const key of ['free', 'free:2']) await (await locks.acquire(key)).release();
    for (const lock of held) await lock.release();
    expect(await Promise.all(waiters)).toEqual(busy);
  });

  it('a nested caller does not queue behind a caller for the same key without a connection', async () => {
    const locks = await rows({ maxConnections: 3 });
    const gathered = gathering(3);
    const nested = ['a', 'b'].map((key) =>
      locks.withLock(key, async () => {
        await gathered();
        return locks.withLock('z', () => key);
      }),
    );
    await untilHeld(locks, 2);
    const first = locks.withLock('z', () => 'first');
    await gathered();
    expect(await Promise.all(nested)).toEqual(['a', 'b']);
    expect(await first).toBe('first');
  });

  it('locks nested three deep need two reserved connections, and so do calls that lock three keys', async () => {
    const locks = await rows({ maxConnections: 4, nestedConnections: 2 });
    const deep = (index: number) =>
      locks.withLock(`a:${index}`, () => locks.withLock(`b:${index}`, () => locks.withLock(`c:${index}`, () => index)));
    const wide = (index: number) =>
      locks.withLock(
        ['x', 'y', 'z'].map((key) => `${key}:${index}`),
        () => index,
      );
    const tens = Array.from({ length: 10 }, (_, index) => index);
    expect(await Promise.all(tens.flatMap((index) => [deep(index), wide(index)]))).toHaveLength(20);
  });

  it('a more deeply nested caller does not queue behind one that waits for a connection', async () => {
    const locks = await rows({ maxConnections: 4, nestedConnections: 2 });
    const ready = gathering(2);
    const asked = gathering(2);
    const deep = locks.withLock('a', () =>
      locks.withLock('c', async () => {
        await ready();
        await asked();
        return locks.withLock('k', () => 'deep');
      }),
    );
    const shallow = locks.withLock('b', async () => {
      await ready();
      // This caller is first in the process's queue, without a connection.
      const last = locks.withLock('k', () => 'shallow');
      await sleep(50);
      void asked();
      return last;
    });
    expect(await Promise.all([deep, shallow])).toEqual(['deep', 'shallow']);
  });

  it('stop() closes connections that are still opening', async () => {
    const before = await settled();
    const locks = await rows({ fencing: true });
    const attempts = Array.from({ length: 5 }, (_, key) => locks.acquire(`late:${key}`));
    await Promise.all([Promise.allSettled(attempts), locks.stop()]);
    while ((await connections()) > before) await sleep(10);
  });

  it('unused connections are closed before the server ends them, and on stop()', async () => {
    const before = await settled();
    const provider = await backend.provider({ sessionGuard: '1s', fencing: true });
    const locks = await processes.start(provider);
    const round = () => Promise.all(Array.from({ length: 5 }, (_, key) => locks.withLock(`noise:${key}`, () => key)));
    for (let rounds = 0; rounds < 3; rounds += 1) await round();
    expect(await connections()).toBeGreaterThan(before + 4);
    // Sessions for single statements, which hold no lock, stay longer.
    while ((await connections()) > before + 4) await sleep(50);
    await round();
    await locks.stop();
    while ((await connections()) > before) await sleep(10);
    if (type === 'mariadb') expect(await aborted()).toBe(0);
  });

  async function untilHeld(locks: LockManager, count: number): Promise<void> {
    while (locks.admin.held().length < count) await sleep(1);
  }

  /** Returns the number of connections once those of earlier tests are closed. */
  async function settled(): Promise<number> {
    let before = Infinity;
    for (let now = await connections(); now !== before; now = await connections()) {
      before = now;
      await sleep(300);
    }
    return before;
  }

  async function connections(): Promise<number> {
    const where =
      type === 'mariadb' ? 'information_schema.processlist' : `pg_stat_activity WHERE backend_type = 'client backend'`;
    const [row] = await backend.admin.query<{ n: unknown }[]>(`SELECT COUNT(*) AS n FROM ${where}`);
    return Number(row!.n);
  }

  async function aborted(): Promise<number> {
    const [row] = await backend.admin.query<{ Value: string }[]>(`SHOW GLOBAL STATUS LIKE 'Aborted_clients'`);
    return Number(row!.Value);
  }
});
