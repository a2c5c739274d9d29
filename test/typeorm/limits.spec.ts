import { afterAll, afterEach, beforeAll, describe, expect, it, jest } from '@jest/globals';
import { setTimeout as sleep } from 'node:timers/promises';
import { DataSource } from 'typeorm';
import { LockManager } from '../../lib/core/lock-manager.js';
import { TypeOrmVersionLockProvider, VersionLockBackend } from '../../lib/providers/typeorm/index.js';
import { LeaseTable } from '../../lib/providers/typeorm/version/lease-table.js';
import { LimitedLeases } from '../../lib/providers/typeorm/version/limited-leases.js';
import { SqlBackend, type SqlType, TABLE } from './sql-backend.js';
import { versionProvider } from './version-backend.js';

const databases: readonly (SqlType | 'sqljs')[] = ['mariadb', 'postgres', 'sqljs'];

describe.each(databases)('limited leases on %s', (type) => {
  let backend: SqlBackend | undefined;
  let admin: DataSource;
  const managers: LockManager[] = [];

  beforeAll(async () => {
    if (type === 'sqljs') admin = await new DataSource({ type }).initialize();
    else {
      backend = await SqlBackend.start(type);
      admin = backend.admin;
    }
  }, 60_000);
  afterEach(async () => {
    await Promise.all(managers.splice(0).map((manager) => manager.stop()));
  }, 20_000);
  afterAll(async () => {
    if (backend) await backend.stop();
    else await admin.destroy();
  });

  async function application(provider?: TypeOrmVersionLockProvider): Promise<LockManager> {
    const own = () =>
      backend
        ? versionProvider(backend)
        : Promise.resolve(new TypeOrmVersionLockProvider({ dataSource: admin, synchronize: true }));
    const locks = new LockManager({
      providers: { sql: provider ?? (await own()) },
      namespace: 'test',
      defaults: { wait: '1m' },
      shutdownGrace: 0,
    });
    managers.push(locks);
    await locks.start();
    return locks;
  }

  async function holdersOf(key: string): Promise<string | null> {
    const [row] = await admin.query<{ holders: string | Buffer | null }[]>(
      `SELECT holders FROM ${TABLE} WHERE name = 'test#lease:${key}'`,
    );
    return row?.holders?.toString() ?? null;
  }

  it('two attempts of one process that do not wait are both granted while there is room, and a third is busy', async () => {
    const locks = await application();
    const answers = await Promise.all([1, 2, 3, 4].map(() => locks.tryAcquire('pool', { limit: 2 })));
    expect(answers.map((lock) => lock?.isHeld())).toEqual([true, true, undefined, undefined]);
    for (const lock of answers) await lock?.release();
    expect(await locks.inspect('pool')).toBeNull();
    expect(await holdersOf('pool')).toBeNull();
  });

  it('processes that come together are never more than the limit, and each has a token of its own', async () => {
    const fleet = [await application(), await application(), await application()];
    const tokens: bigint[] = [];
    let used = 0;
    let most = 0;
    const tasks = Array.from({ length: 45 }, (_, index) => {
      const weight = index % 5 === 0 ? 2 : 1;
      return fleet[index % fleet.length]!.withLock(
        'busy pool',
        async ({ fencingToken }) => {
          used += weight;
          most = Math.max(most, used);
          tokens.push(fencingToken!);
          await sleep(1);
          used -= weight;
        },
        { limit: 3, weight },
      );
    });
    await Promise.all(tasks);
    expect(most).toBeLessThanOrEqual(3);
    expect(new Set(tokens).size).toBe(tasks.length);
    await (await fleet[0]!.acquire('busy pool')).release();
  }, 60_000);

  it('an exclusive lock waits for all of them, and nothing of them is left in its row', async () => {
    const [ann, bob] = [await application(), await application()];
    await ann.acquire('pool', { limit: 3, renew: false, lease: 300 });
    const holder = await ann.acquire('pool', { limit: 3 });
    const alone = bob.acquire('pool', { minHold: '10m' });
    expect(await holder.release()).toBe('released');
    expect((await alone).fencingToken).toBeGreaterThan(holder.fencingToken!);
    expect(await holdersOf('pool')).toBeNull();
    expect(await (await alone).release()).toBe('released');
    expect(await ann.tryAcquire('pool', { limit: 3 })).toBeNull();
    expect(await ann.forceRelease('pool')).toBe(true);
  });

  it('holders of one process are renewed by one change of their row', async () => {
    const locks = await application();
    const held = await Promise.all(Array.from({ length: 12 }, () => locks.acquire('many', { limit: 20 })));
    const replaced = jest.spyOn(LeaseTable.prototype, 'replace');
    try {
      await Promise.all(held.map((lock) => lock.extend('1h')));
      expect(replaced).toHaveBeenCalledTimes(1);
    } finally {
      replaced.mockRestore();
    }
    expect((await locks.inspect('many'))?.expiresIn).toBeGreaterThan(3_000_000);
    expect(await Promise.all(held.map((lock) => lock.release()))).toEqual(held.map(() => 'released'));
    expect(await locks.inspect('many')).toBeNull();
  });

  it('a change that was prepared before forceRelease() does not undo it', async () => {
    const locks = await application();
    const lock = await locks.acquire('forced', { limit: 2 });
    const { replace } = LeaseTable.prototype;
    const replaced = jest.spyOn(LeaseTable.prototype, 'replace').mockImplementationOnce(async function (
      this: LeaseTable,
      ...change
    ) {
      expect(await locks.forceRelease('forced')).toBe(true);
      return Reflect.apply(replace, this, change);
    });
    try {
      await expect(lock.extend()).rejects.toThrow(/lost/);
    } finally {
      replaced.mockRestore();
    }
    expect(await locks.inspect('forced')).toBeNull();
  });

  it('the statements of exclusive locks stay what they were: one look, and one for each step', async () => {
    const locks = await application();
    await (await locks.acquire('alone')).release();
    const statements = ['look', 'claim', 'renew', 'release', 'replace'] as const;
    const calls = statements.map((name) => jest.spyOn(LeaseTable.prototype, name));
    const limited = jest.spyOn(LimitedLeases.prototype, 'release');
    try {
      const lock = await locks.acquire('alone');
      await lock.extend();
      await lock.release();
      expect(calls.map(({ mock }) => mock.calls.length)).toEqual([1, 1, 1, 1, 0]);
      expect(limited).not.toHaveBeenCalled();
    } finally {
      for (const spy of [...calls, limited]) spy.mockRestore();
    }
  });

  if (type === 'sqljs') return;

  it('a grant whose answer was lost is found again, with its token, and takes nothing more', async () => {
    const provider = await versionProvider(backend!);
    const locks = await application(provider);
    await (await locks.acquire('lost-reply', { limit: 2 })).release();
    const wire = backend!.wireOf(provider)!;
    wire.holdReplies();
    const late = locks.acquire('lost-reply', { limit: 2 });
    // The look needs its answer, the claim must lose it: answers pass until the row is claimed.
    while ((await holdersOf('lost-reply')) === null) {
      wire.passReplies();
      wire.holdReplies();
      await sleep(1);
    }
    wire.cut();
    wire.passReplies();
    const [[holder, token]] = JSON.parse((await holdersOf('lost-reply'))!) as [[string, string]];
    const lock = await late;
    expect([lock.holder, lock.fencingToken]).toEqual([holder, BigInt(token)]);
    expect(await locks.backend(VersionLockBackend).inspect('lost-reply')).toMatchObject({ holders: 1, used: 1 });
    expect(await lock.release()).toBe('released');
  });
});
