import { type DataSource } from 'typeorm';
import type { Clock } from '../../lib/api/clock.js';
import { LockLostError } from '../../lib/api/errors.js';
import type { Lock } from '../../lib/api/lock.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { FAMILIES } from '../../lib/providers/sql/connection/databases.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { kindOf, type Observer } from './observed-driver.js';
import { SqlBackend, type SqlType, TABLE } from './sql-backend.js';
import { versionProvider } from './version-backend.js';

type Statement = readonly [sql: string, values: readonly unknown[]];

const databases: readonly SqlType[] = ['mariadb', 'postgres'];

describe.each(databases)('limited leases on %s', (type) => {
  const { now } = FAMILIES[type === 'mariadb' ? 'mysql' : type];
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

  /** An application that is patient, because the observer delays its statements by those of another application. */
  async function application(observer?: Observer, clock?: Clock): Promise<LockManager> {
    const locks = new LockManager({
      providers: { sql: await versionProvider(backend, { observer, commandTimeout: '1m' }) },
      namespace: 'test',
      defaults: { wait: '1m', lease: '1h' },
      shutdownGrace: 0,
      clock,
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

  /**
   * Calls `observe` with each statement for the key and its kind, before it is sent. A process that has started also
   * claims the row of the purge.
   *
   * A reservation takes effect within 500 ms of the read before it, or not at all. This removes that limit, because
   * `observe` may take longer on a busy machine. version-request.spec.ts tests the limit.
   */
  const about =
    (key: string, observe: (kind: string | undefined, ...statement: Statement) => Promise<unknown>): Observer =>
    (sql, values) => {
      if (!values.flat().includes(`test#lease:${key}`)) return undefined;
      const kind = kindOf(sql);
      const limit =
        kind === 'limited reservation' ? values.findIndex((value) => typeof value === 'number' && value > 1e15) : -1;
      if (limit >= 0) values[limit] = Number.MAX_SAFE_INTEGER;
      return observe(kind, sql, values);
    };

  it('an exclusive lock waits for all limited holders, and leaves nothing of them in its row', async () => {
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

  it('a renewal is one statement: earlier claims of other processes, however many, neither make it fail nor become part of it', async () => {
    const bob = await application();
    const cycle = async () => (await bob.acquire('contended', { limit: 3 })).release();
    const sent: unknown[] = [];
    const observer = about('contended', async (kind) => {
      sent.push(kind);
      if (kind !== 'limited renewal') return;
      for (let round = 0; round < 10; round += 1) expect(await cycle()).toBe('released');
    });
    // With a real clock, a renewal that is unanswered for a second is sent again.
    const ann = await application(observer, new FakeClock());
    const lock = await ann.acquire('contended', { limit: 3, lease: '1h' });
    sent.length = 0;
    for (let round = 0; round < 5; round += 1) {
      await lock.extend('1h');
      await cycle();
    }
    expect(sent).toEqual(Array(5).fill('limited renewal'));
    expect(lock.isHeld()).toBe(true);
    expect(await lock.release()).toBe('released');
  });

  it('a renewal does not count for a later position of the same holder', async () => {
    const locks = await application();
    const lock = await locks.acquire('moved', { limit: 2, lease: '1h' });
    const [, token] = /,(\d{16}),/.exec((await holdersOf('moved'))!)!;
    // As after a forced release, if a reservation that got no reply is executed late.
    await admin.query(
      `UPDATE ${TABLE} SET holders = REPLACE(holders, ',${token},', ',${BigInt(token!) + 1n},') WHERE name = 'test#lease:moved'`,
    );
    await expect(lock.extend()).rejects.toBeInstanceOf(LockLostError);
  });

  it('a claim does not undo a renewal that happens between its read and its update', async () => {
    const ann = await application();
    const lock = await ann.acquire('renewed', { limit: 2 });
    let claims = 0;
    const observer = about('renewed', async (kind) => {
      if (kind !== 'limited claim') return;
      claims += 1;
      await lock.extend('1h');
    });
    const bob = await application(observer);
    const other = await bob.tryAcquire('renewed', { limit: 2 });
    expect(claims).toBe(1);
    expect(other?.isHeld()).toBe(true);
    await other?.release();
    expect((await ann.admin.inspect('renewed'))?.expiresIn).toBeGreaterThan(3_000_000);
    expect(await lock.release()).toBe('released');
  });

  it('a claim does not end an exclusive lease that is renewed between its read and its update', async () => {
    const ann = await application();
    const lock = await ann.acquire('exclusive', { lease: '1h' });
    const endAt = (time: string) =>
      admin.query(`UPDATE ${TABLE} SET expires = ${time} WHERE name = 'test#lease:exclusive'`);
    let claims = 0;
    const observer = about('exclusive', async (kind) => {
      if (kind !== 'limited claim') return;
      claims += 1;
      // Like a renewal that reached the server before the lease ended, but is executed only now.
      await endAt(`${now} + 3600000000`);
    });
    const bob = await application(observer);
    await endAt(now);
    expect(await bob.tryAcquire('exclusive', { limit: 2 })).toBeNull();
    expect(claims).toBe(1);
    expect(await lock.release()).toBe('released');
  });

  it('minHold counts from the claim, however long ago the row was read', async () => {
    let claimedAt = Infinity;
    const observer = about('kept', async (kind) => {
      if (kind !== 'limited claim') return;
      const [row] = await admin.query<{ time: unknown }[]>(`SELECT ${now} AS time`);
      claimedAt = Number(row!.time);
    });
    const locks = await application(observer);
    const lock = await locks.acquire('kept', { limit: 2, minHold: '10m' });
    const [, end] = /=(\d{16}),/.exec((await holdersOf('kept'))!)!;
    expect(Number(end)).toBeGreaterThanOrEqual(claimedAt + 600_000_000);
    await lock.release();
    expect(await locks.admin.forceRelease('kept')).toBe(true);
  });

  it('an attempt that does not wait is granted while there is room, even if another claim overtakes each of its reads', async () => {
    const bob = await application();
    const overtaken: unknown[] = [];
    const observer = about('overtaken', async (kind) => {
      if (kind !== 'limited claim' && kind !== 'limited reservation') return;
      overtaken.push(kind);
      await (await bob.acquire('overtaken', { limit: 3 })).release();
    });
    const ann = await application(observer);
    const lock = await ann.tryAcquire('overtaken', { limit: 3 });
    expect(lock?.isHeld()).toBe(true);
    expect(overtaken).toEqual(['limited claim', 'limited reservation']);
    expect(await ann.admin.inspect('overtaken')).toMatchObject({ holders: 1, used: 1, limit: 3 });
    expect(await lock?.release()).toBe('released');
  });

  it('an attempt that reserved a position and finds no room gives the position up', async () => {
    const bob = await application();
    await (await bob.acquire('full', { limit: 1 })).release();
    let holder: Lock | undefined;
    const places: unknown[] = [];
    const observer = about('full', async (kind) => {
      if (kind === 'limited claim') await (await bob.acquire('full', { limit: 1 })).release();
      if (kind === 'limited reservation') holder = await bob.acquire('full', { limit: 1 });
      if (kind !== 'look' || !holder) return;
      places.push((await holdersOf('full'))!.match(/=(?!0{16})/g)?.length, await bob.admin.inspect('full'));
    });
    const ann = await application(observer);
    expect(await ann.tryAcquire('full', { limit: 1 })).toBeNull();
    // Two have a position, and one of them holds.
    expect(places.slice(0, 2)).toEqual([2, expect.objectContaining({ holders: 1, used: 1, limit: 1 })]);
    expect(await holder?.release()).toBe('released');
    expect(await ann.admin.inspect('full')).toBeNull();
    await (await bob.acquire('full')).release();
  });

  it('a position that was given up is not granted, and its late release does not end a later one', async () => {
    const bob = await application();
    const take = () => bob.acquire('late', { limit: 1 });
    await (await take()).release();
    let holder: Lock | undefined;
    const releases: Statement[] = [];
    const observer = about('late', async (kind, ...statement) => {
      if (kind === 'limited claim') await (await take()).release();
      if (kind === 'limited reservation') holder ??= await take();
      if (kind !== 'limited release' || releases.push(statement) > 1) return;
      // There is room when the request is repeated.
      await holder?.release();
      throw new Error('No reply, and the statement arrives later.');
    });
    const ann = await application(observer);
    const lock = await ann.acquire('late', { limit: 1 });
    expect(releases).toHaveLength(2);
    const [[sql, values]] = releases as [Statement];
    await admin.query(sql, [...values]);
    expect(await bob.tryAcquire('late', { limit: 1 })).toBeNull();
    expect(await lock.release()).toBe('released');
  });
});
