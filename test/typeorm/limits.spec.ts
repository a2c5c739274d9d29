import { VersionLockBackend } from '../../lib/providers/sql/version/version-lock-backend.js';
import { jest } from '@jest/globals';
import { setTimeout as sleep } from 'node:timers/promises';
import { type DataSource } from 'typeorm';
import { LockManager } from '../../lib/core/lock-manager.js';
import { type TypeOrmVersionLockProvider } from '../../lib/providers/typeorm/index.js';
import { LeaseTable } from '../../lib/providers/sql/version/lease-table.js';
import { LimitedLeases } from '../../lib/providers/sql/version/limited-leases.js';
import { SqlBackend, type SqlType, TABLE } from './sql-backend.js';
import { versionProvider } from './version-backend.js';

const databases: readonly SqlType[] = ['mariadb', 'postgres'];

describe.each(databases)('limited leases on %s', (type) => {
  let backend: SqlBackend;
  let admin: DataSource;
  const managers: LockManager[] = [];

  beforeAll(async () => {
    backend = await SqlBackend.start(type);
    admin = backend.admin;
  }, 60_000);
  afterEach(async () => {
    await Promise.all(managers.splice(0).map((manager) => manager.stop()));
  });
  afterAll(async () => {
    await backend.stop();
  });

  async function application(provider?: TypeOrmVersionLockProvider): Promise<LockManager> {
    const locks = new LockManager({
      providers: { sql: provider ?? (await versionProvider(backend)) },
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
    expect(await locks.admin.inspect('pool')).toBeNull();
    expect(await locks.admin.forceRelease('pool')).toBe(false);
  });

  it('processes that come together are never more than the limit, and have no tokens', async () => {
    const fleet = [await application(), await application(), await application()];
    const tokens = new Set<bigint | null>();
    let used = 0;
    let most = 0;
    const tasks = Array.from({ length: 45 }, (_, index) => {
      const weight = index % 5 === 0 ? 2 : 1;
      return fleet[index % fleet.length]!.withLock(
        'busy pool',
        async ({ fencingToken }) => {
          used += weight;
          most = Math.max(most, used);
          tokens.add(fencingToken);
          await sleep(1);
          used -= weight;
        },
        { limit: 3, weight },
      );
    });
    await Promise.all(tasks);
    expect(most).toBeLessThanOrEqual(3);
    expect([...tokens]).toEqual([null]);
    await (await fleet[0]!.acquire('busy pool')).release();
  }, 60_000);

  it('an exclusive lock waits for all of them, and nothing of them is left in its row', async () => {
    const [ann, bob] = [await application(), await application()];
    await ann.acquire('pool', { limit: 3, maxHold: 300 });
    const holder = await ann.acquire('pool', { limit: 3 });
    const last = /,(\d{16}),\d+,\d+$/.exec((await holdersOf('pool'))!)![1]!;
    const alone = bob.acquire('pool', { minHold: '10m' });
    expect(await holder.release()).toBe('released');
    expect((await alone).fencingToken).toBeGreaterThan(BigInt(last));
    expect(await holdersOf('pool')).toBeNull();
    expect(await (await alone).release()).toBe('released');
    expect(await ann.tryAcquire('pool', { limit: 3 })).toBeNull();
    expect(await ann.admin.forceRelease('pool')).toBe(true);
  });

  it('holders of one process are renewed and released together', async () => {
    const locks = await application();
    const held = await Promise.all(Array.from({ length: 12 }, () => locks.acquire('many', { limit: 20 })));
    await Promise.all(held.map((lock) => lock.extend('1h')));
    expect(await locks.admin.inspect('many')).toMatchObject({ holders: 12, used: 12, limit: 20 });
    expect((await locks.admin.inspect('many'))?.expiresIn).toBeGreaterThan(3_000_000);
    expect(await Promise.all(held.map((lock) => lock.release()))).toEqual(held.map(() => 'released'));
    expect(await locks.admin.inspect('many')).toBeNull();
  });

  it('a renewal is one statement: claims of others before it, however many, do not make it fail or take part in it', async () => {
    const [ann, bob] = [await application(), await application()];
    const lock = await ann.acquire('contended', { limit: 3, lease: '1h' });
    const { renew } = LimitedLeases.prototype;
    const cycle = async () => (await bob.acquire('contended', { limit: 3 })).release();
    const looks = jest.spyOn(LeaseTable.prototype, 'read');
    const renewed = jest.spyOn(LimitedLeases.prototype, 'renew').mockImplementation(async function (
      this: LimitedLeases,
      ...change
    ) {
      for (let round = 0; round < 10; round += 1) expect(await cycle()).toBe('released');
      looks.mockClear();
      const answer = await Reflect.apply(renew, this, change);
      expect(looks).not.toHaveBeenCalled();
      await cycle();
      return answer;
    });
    try {
      for (let round = 0; round < 5; round += 1) await lock.extend('1h');
    } finally {
      renewed.mockRestore();
      looks.mockRestore();
    }
    expect(lock.isHeld()).toBe(true);
    expect(await lock.release()).toBe('released');
  });

  it('a claim does not undo a renewal that comes between its look and itself', async () => {
    const [ann, bob] = [await application(), await application()];
    const lock = await ann.acquire('renewed', { limit: 2 });
    const { claim } = LimitedLeases.prototype;
    const claimed = jest.spyOn(LimitedLeases.prototype, 'claim').mockImplementationOnce(async function (
      this: LimitedLeases,
      ...terms
    ) {
      await lock.extend('1h');
      return Reflect.apply(claim, this, terms);
    });
    const other = await bob.tryAcquire('renewed', { limit: 2 });
    expect(claimed).toHaveBeenCalledTimes(1);
    claimed.mockRestore();
    expect(other?.isHeld()).toBe(true);
    await other?.release();
    expect((await ann.admin.inspect('renewed'))?.expiresIn).toBeGreaterThan(3_000_000);
    expect(await lock.release()).toBe('released');
  });

  it('minHold counts from the claim, however long ago the row was read', async () => {
    const locks = await application();
    const { claim } = LimitedLeases.prototype;
    const claimed = jest.spyOn(LimitedLeases.prototype, 'claim').mockImplementationOnce(async function (
      this: LimitedLeases,
      ...terms
    ) {
      await sleep(1_500);
      return Reflect.apply(claim, this, terms);
    });
    const lock = await locks.acquire('kept', { limit: 2, minHold: '10m' });
    claimed.mockRestore();
    expect((await locks.admin.inspect('kept'))?.expiresIn).toBeGreaterThan(599_000);
    await lock.release();
    expect(await locks.admin.forceRelease('kept')).toBe(true);
  });

  it('an attempt that does not wait is granted while there is room, although each of its looks is overtaken', async () => {
    const [ann, bob] = [await application(), await application()];
    const { claim, reserve } = LimitedLeases.prototype;
    const passers: (typeof claim | typeof reserve)[] = [];
    let isOvertaken = false;
    const overtake = async () => {
      if (isOvertaken) return;
      isOvertaken = true;
      await (await bob.acquire('overtaken', { limit: 3 })).release();
      isOvertaken = false;
    };
    const spies = [
      jest.spyOn(LimitedLeases.prototype, 'claim').mockImplementation(async function (this: LimitedLeases, ...terms) {
        passers.push(claim);
        await overtake();
        return Reflect.apply(claim, this, terms);
      }),
      jest.spyOn(LimitedLeases.prototype, 'reserve').mockImplementation(async function (this: LimitedLeases, ...terms) {
        passers.push(reserve);
        await overtake();
        return Reflect.apply(reserve, this, terms);
      }),
    ];
    try {
      const lock = await ann.tryAcquire('overtaken', { limit: 3 });
      expect(lock?.isHeld()).toBe(true);
      expect(passers).toEqual([claim, claim, reserve, claim]);
      expect(await ann.admin.inspect('overtaken')).toMatchObject({ holders: 1, used: 1, limit: 3 });
      expect(await lock?.release()).toBe('released');
    } finally {
      for (const spy of spies) spy.mockRestore();
    }
  });

  it('an attempt that reserved a place and finds no room leaves it', async () => {
    const [ann, bob] = [await application(), await application()];
    await (await bob.acquire('full', { limit: 1 })).release();
    const { claim, reserve } = LimitedLeases.prototype;
    const claimed = jest.spyOn(LimitedLeases.prototype, 'claim').mockImplementationOnce(async function (
      this: LimitedLeases,
      ...terms
    ) {
      await (await bob.acquire('full', { limit: 1 })).release();
      return Reflect.apply(claim, this, terms);
    });
    let holder: Awaited<ReturnType<typeof bob.acquire>> | undefined;
    const reserved = jest.spyOn(LimitedLeases.prototype, 'reserve').mockImplementationOnce(async function (
      this: LimitedLeases,
      ...terms
    ) {
      holder = await bob.acquire('full', { limit: 1 });
      const answer = await Reflect.apply(reserve, this, terms);
      expect(answer).toBe(true);
      expect(await ann.admin.inspect('full')).toMatchObject({ holders: 1, used: 1, limit: 1 });
      return answer;
    });
    try {
      expect(await ann.tryAcquire('full', { limit: 1 })).toBeNull();
    } finally {
      claimed.mockRestore();
      reserved.mockRestore();
    }
    expect(await holder?.release()).toBe('released');
    expect(await ann.admin.inspect('full')).toBeNull();
    await (await bob.acquire('full')).release();
  });

  it('forceRelease() frees all holders, and their renewals are lost', async () => {
    const locks = await application();
    const lock = await locks.acquire('forced', { limit: 2 });
    expect(await locks.admin.forceRelease('forced')).toBe(true);
    expect(await locks.admin.forceRelease('forced')).toBe(false);
    await expect(lock.extend()).rejects.toThrow(/lost/);
    expect(await locks.admin.inspect('forced')).toBeNull();
  });

  it('the statements of exclusive locks stay what they were: one look, and one for each step', async () => {
    const locks = await application();
    await (await locks.acquire('alone')).release();
    const statements = ['read', 'claim', 'renew', 'free'] as const;
    const calls = statements.map((name) => jest.spyOn(LeaseTable.prototype, name));
    const limited = jest.spyOn(LimitedLeases.prototype, 'release');
    try {
      const lock = await locks.acquire('alone');
      await lock.extend();
      await lock.release();
      // A process that has started also reads the row of the purge.
      const ofKey = ({ mock }: (typeof calls)[number]) =>
        mock.calls.filter(([row]) => (typeof row === 'string' ? row : row.name).endsWith('#lease:alone'));
      expect(calls.map((spy) => ofKey(spy).length)).toEqual([1, 1, 1, 1]);
      expect(limited).not.toHaveBeenCalled();
    } finally {
      for (const spy of [...calls, limited]) spy.mockRestore();
    }
  });

  it('a grant whose answer was lost is found again and takes nothing more', async () => {
    const provider = await versionProvider(backend);
    const locks = await application(provider);
    await (await locks.acquire('lost-reply', { limit: 2 })).release();
    const wire = backend.wireOf(provider)!;
    wire.holdReplies();
    const late = locks.acquire('lost-reply', { limit: 2 });
    // The look needs its answer, the claim must lose it: answers pass until the row is claimed.
    while (!/=(?!0{16})/.test((await holdersOf('lost-reply')) ?? '')) {
      wire.passReplies();
      wire.holdReplies();
      await sleep(1);
    }
    wire.cut();
    wire.passReplies();
    const [, holder] = /^;(\w+)=\d{16},\d+,1,2$/.exec((await holdersOf('lost-reply'))!)!;
    const lock = await late;
    expect([lock.holder, lock.fencingToken]).toEqual([holder, null]);
    expect(await locks.admin.backend(VersionLockBackend).inspect('lost-reply')).toMatchObject({ holders: 1, used: 1 });
    expect(await lock.release()).toBe('released');
  });
});
