import { setTimeout as sleep } from 'node:timers/promises';
import type { DataSource, EntityManager } from 'typeorm';
import type { Clock } from '../../lib/api/clock.js';
import { LockCapacityError, LockConfigError, LockError, LockLostError } from '../../lib/api/errors.js';
import type { Lock } from '../../lib/api/lock.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import type { Run } from '../../lib/providers/sql/connection/answer.js';
import { FAMILIES } from '../../lib/providers/sql/connection/databases.js';
import { counterNameOf, rowNameOf } from '../../lib/providers/sql/table/lock-name.js';
import { LockTable } from '../../lib/providers/sql/table/lock-table.js';
import { entityManagerOf, TypeOrmRowLockProvider } from '../../lib/providers/typeorm/index.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { contextFor } from '../backend-context.js';
import { until } from '../until.js';
import { Account } from './accounts.js';
import { observed, type Observer } from './observed-driver.js';
import { NUMBERS, SqlBackend, type SqlType, TABLE } from './sql-backend.js';

// To test one database only, run `npm test -- test/typeorm/row-lock.spec.ts -t mariadb`.
const databases: readonly SqlType[] = ['mariadb', 'postgres'];

describe.each(databases)('row locks on %s', (type) => {
  let backend: SqlBackend;
  const managers: LockManager[] = [];
  const sources: DataSource[] = [];

  beforeAll(async () => {
    backend = await SqlBackend.start(type);
    await backend
      .source({ entities: [Account], synchronize: true })
      .initialize()
      .then((source) => source.destroy());
  }, 60_000);
  afterEach(async () => {
    await Promise.all(managers.splice(0).map((manager) => manager.stop()));
    await Promise.all(sources.splice(0).map((source) => source.destroy()));
    await backend.admin.query('DELETE FROM account');
  });
  afterAll(() => backend.stop());

  /** Returns the DataSource of an application. */
  async function application(options: object = {}): Promise<DataSource> {
    const source = await backend.source({ entities: [Account], ...options }).initialize();
    sources.push(source);
    return source;
  }

  async function process(
    options: Parameters<SqlBackend['provider']>[0] = {},
    provider?: TypeOrmRowLockProvider,
    clock?: Clock,
  ): Promise<LockManager> {
    const locks = new LockManager({
      providers: {
        sql:
          provider ?? (await backend.provider({ ...options, dataSource: options.dataSource ?? (await application()) })),
      },
      namespace: 'test',
      clock,
      // A waiter is granted the lock within milliseconds, and within seconds on a busy machine.
      defaults: { wait: '1m' },
    });
    managers.push(locks);
    await locks.start();
    return locks;
  }

  /** The loss is detected within milliseconds, and within seconds on a busy machine. */
  async function untilLost(lock: Lock): Promise<void> {
    for (const end = Date.now() + 15_000; lock.isHeld() && Date.now() < end;) await sleep(2);
  }

  async function balances(): Promise<Record<number, number>> {
    const rows = await backend.admin.query<Account[]>('SELECT id, balance FROM account');
    return Object.fromEntries(rows.map(({ id, balance }) => [id, balance]));
  }

  const write = (manager: EntityManager, id: number, balance: number) => manager.save(Account, { id, balance });

  it("a release commits what was written in the lock's transaction", async () => {
    const locks = await process();
    await locks.withLock('account:1', async (lock) => {
      await write(entityManagerOf(lock), 1, 100);
      expect(await balances()).toEqual({});
    });
    expect(await balances()).toEqual({ 1: 100 });
    expect(await backend.untilTransactions(0)).toBe(0);
  });

  it('the transaction is rolled back if the task fails, and the task error is thrown', async () => {
    const locks = await process();
    const error = new Error('of the task');
    const task = locks.withLock('account:1', async (lock) => {
      await write(entityManagerOf(lock), 1, 100);
      throw error;
    });
    await expect(task).rejects.toBe(error);
    expect(await balances()).toEqual({});
  });

  it('a holder that is killed midway has written nothing and is notified immediately, and the next caller gets the lock', async () => {
    const [ann, bob] = [await process(), await process()];
    let next: Promise<unknown> = Promise.resolve();
    const task = ann.withLock('account:1', async (lock) => {
      const manager = entityManagerOf(lock);
      await write(manager, 1, 100);
      next = bob.withLock('account:1', (other) => write(entityManagerOf(other), 1, 200));
      await backend.untilWaiting(1);
      await backend.revoke('test', 'account:1');
      await untilLost(lock);
      expect(lock.isHeld()).toBe(false);
      await expect(write(manager, 1, 300)).rejects.toThrow();
    });
    await expect(task).rejects.toBeInstanceOf(LockLostError);
    await next;
    expect(await balances()).toEqual({ 1: 200 });
  });

  // An INSERT IGNORE would wait until it times out: its caller found no row, and another caller has created and locked
  // it meanwhile.
  it('creating the row of a key does not wait for its holder', async () => {
    const locks = await process();
    await using lock = await locks.acquire('account:1');
    const family = type === 'mariadb' ? 'mysql' : 'postgres';
    const runner = backend.admin.createQueryRunner();
    if (type === 'mariadb') await runner.query('SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED');
    const run: Run = (sql, parameters = []) => runner.query(sql, [...parameters]);
    const table = new LockTable(TABLE, FAMILIES[family], run, contextFor(), { commandTimeout: 1, synchronize: false });
    expect(await table.createRow(rowNameOf('test', 'account:1'))).toBe(true);
    await runner.release();
    expect(lock.isHeld()).toBe(true);
  });

  it('a holder that is cut off before its commit learns that the lock was lost', async () => {
    // The server frees the row after the guard, which both servers measure in whole seconds or more.
    const provider = await backend.provider({ sessionGuard: '1s', commandTimeout: '1h' });
    const time = new FakeClock();
    const locks = await process({}, provider, time);
    let isCutOff = false as boolean;
    const task = locks.withLock('account:1', async (lock) => {
      await entityManagerOf(lock).query('INSERT INTO account (id, balance) VALUES (1, 100)');
      backend.wireOf(provider)?.freeze();
      isCutOff = true;
    });
    let isOver = false;
    const ended = task.finally(() => (isOver = true));
    ended.catch(() => undefined);
    await until(async () => {
      if (isCutOff) await time.advance(600_000);
      return isOver;
    }, 'its COMMIT counts as unanswered');
    await expect(ended).rejects.toBeInstanceOf(LockLostError);
    const other = await process();
    await (await other.acquire('account:1', { wait: '20s' })).release();
    expect(await balances()).toEqual({});
    backend.wireOf(provider)?.thaw();
  }, 90_000);

  it('a failed statement that the task caught never leads to a commit of only the rest', async () => {
    const locks = await process();
    const task = locks.withLock('account:1', async (lock) => {
      const manager = entityManagerOf(lock);
      await write(manager, 1, 100);
      await expect(manager.query('SELECT * FROM nowhere')).rejects.toThrow();
    });
    // Postgres rolls back the whole transaction, MariaDB only the statement.
    if (type === 'postgres') await expect(task).rejects.toBeInstanceOf(LockLostError);
    else await task;
    expect(await balances()).toEqual(type === 'postgres' ? {} : { 1: 100 });
  });

  it('a nested transaction left open is not committed, and its connection is not reused', async () => {
    const locks = await process({ maxConnections: 1 });
    const task = locks.withLock('account:1', async (lock) => {
      const manager = entityManagerOf(lock);
      await manager.queryRunner!.startTransaction();
      await write(manager, 1, 100);
    });
    await expect(task).rejects.toBeInstanceOf(LockLostError);
    await locks.withLock('account:1', (lock) => write(entityManagerOf(lock), 2, 200));
    expect(await balances()).toEqual({ 2: 200 });
  });

  it('a statement may take most of the guard, and a heartbeat follows it', async () => {
    const [guard, most] = [600_000, 400_000];
    const time = new FakeClock();
    // Replies take real time, in which a test may advance this clock by hours.
    const locks = await process({}, await backend.provider({ sessionGuard: guard, commandTimeout: '24h' }), time);
    await backend.admin.query('INSERT INTO account (id, balance) VALUES (1, 0)');
    const other = backend.admin.createQueryRunner();
    await other.startTransaction();
    await other.query('SELECT 1 FROM account WHERE id = 1 FOR UPDATE');
    await locks.withLock('a', async (lock) => {
      const statement = entityManagerOf(lock).query('UPDATE account SET balance = 1 WHERE id = 1');
      await backend.untilWaiting(1);
      await time.advance(most);
      expect(lock.isHeld()).toBe(true);
      await other.rollbackTransaction();
      await statement;
      await until(async () => {
        await time.advance(1_000);
        return lock.remaining() > most;
      }, 'a heartbeat has followed');
      await time.advance(most);
      lock.assertHeld();
    });
    await other.release();
    expect(await balances()).toEqual({ 1: 1 });
  });

  it('a lock is lost if the server rolls back its transaction for a deadlock', async () => {
    await backend.admin.query('INSERT INTO account (id, balance) VALUES (1, 0), (2, 0)');
    const [ann, bob] = [await process(), await process()];
    const update = (id: number, manager: EntityManager) =>
      manager.query(`UPDATE account SET balance = balance + 1 WHERE id = ${id}`);
    let arrived = 0;
    const cross = (locks: LockManager, key: string, first: number, second: number) =>
      locks.withLock(key, async (lock) => {
        const manager = entityManagerOf(lock);
        await update(first, manager);
        arrived += 1;
        while (arrived < 2) await sleep(2);
        await update(second, manager).catch(() => undefined);
      });
    const outcomes = await Promise.allSettled([cross(ann, 'a', 1, 2), cross(bob, 'b', 2, 1)]);
    const failed = outcomes.filter((outcome) => outcome.status === 'rejected');
    expect(failed.map(({ reason }) => reason as unknown)).toEqual([expect.any(LockLostError)]);
    expect(await balances()).toEqual({ 1: 1, 2: 1 });
  });

  it('a key that was never locked is granted to one of fifty callers at a time', async () => {
    const processes = await Promise.all([process(), process(), process(), process(), process()]);
    for (const key of ['fresh', 'young']) {
      let inside = 0;
      const attempts = Array.from({ length: 50 }, async (_, index) => {
        await processes[index % 5]!.withLock(key, async () => {
          inside += 1;
          expect(inside).toBe(1);
          await sleep(1);
          inside -= 1;
        });
      });
      await Promise.all(attempts);
    }
  }, 120_000);

  it("more locks than connections cause a capacity error within the caller's wait", async () => {
    const locks = await process({ maxConnections: 3 });
    const held = [await locks.acquire('a'), await locks.acquire('b')];
    await expect(locks.acquire('c', { wait: 0 })).rejects.toBeInstanceOf(LockCapacityError);
    const start = performance.now();
    await expect(locks.acquire('c', { wait: 300 })).rejects.toBeInstanceOf(LockCapacityError);
    // Without a time limit, the caller would wait until a connection is free.
    expect(performance.now() - start).toBeLessThan(10_000);
    const late = locks.acquire('c');
    await sleep(50);
    await held[0]!.release();
    await (await late).release();
    await held[1]!.release();
  });

  it('a cancelled wait also ends on the server', async () => {
    const [ann, bob] = [await process(), await process()];
    const held = await ann.acquire('a');
    await expect(bob.acquire('a', { wait: 1_000 })).rejects.toMatchObject({ code: 'LOCK_BUSY' });
    // The holder's own transaction.
    expect(await backend.untilTransactions(1)).toBe(1);
    await held.release();
    expect(await backend.untilTransactions(0)).toBe(0);
  });

  it('a waiter reads what the previous holder wrote, whatever isolation level the application uses', async () => {
    for (const isolationLevel of ['REPEATABLE READ', 'SERIALIZABLE']) {
      const dataSource = await application({ isolationLevel });
      const [ann, bob] = [await process({ dataSource }), await process({ dataSource })];
      const withdraw = (locks: LockManager) =>
        locks.withLock('account', async (lock) => {
          const manager = entityManagerOf(lock);
          const { balance } = (await manager.findOneBy(Account, { id: 9 })) ?? { balance: 100 };
          await write(manager, 9, balance - 10);
        });
      await Promise.all([ann, bob, ann, bob].map(withdraw));
      expect(await balances()).toEqual({ 9: 60 });
      await backend.admin.query('DELETE FROM account');
      expect(await ann.withLock('account', () => bob.tryAcquire('account'))).toBeNull();
    }
  });

  it('subscribers of the application are notified of its writes and their transaction', async () => {
    const dataSource = await application();
    const notified: string[] = [];
    const notify = (what: string) => () => void notified.push(what);
    dataSource.subscribers.push({
      beforeTransactionStart: notify('start'),
      beforeQuery: notify('query'),
      afterInsert: notify('insert'),
      afterTransactionCommit: notify('committed'),
    });
    const locks = await process({ dataSource });
    await locks.withLock('a', () => undefined);
    expect(notified).toEqual([]);
    await locks.withLock('a', (lock) => entityManagerOf(lock).insert(Account, { id: 1, balance: 1 }));
    expect(notified).toEqual(['start', 'query', 'insert', 'committed']);
    dataSource.subscribers.push({ afterTransactionCommit: () => Promise.reject(new Error('of the subscriber')) });
    // After the COMMIT, the failure changes nothing.
    await locks.withLock('a', (lock) => write(entityManagerOf(lock), 1, 2));
    expect(await balances()).toEqual({ 1: 2 });
  });

  it('several keys and shared locks have no transaction to write in', async () => {
    const locks = await process();
    await using several = await locks.acquire(['a', 'b']);
    expect(() => entityManagerOf(several)).toThrow(LockConfigError);
    if (type === 'postgres') {
      // Readers would overtake a waiting writer.
      await expect(locks.acquire('c', { mode: 'shared' })).rejects.toThrow(/does not support mode: 'shared'/);
      return;
    }
    await using shared = await locks.acquire('c', { mode: 'shared' });
    expect(() => entityManagerOf(shared)).toThrow(LockConfigError);
  });

  it('uses no connection of the application, and reports a missing table', async () => {
    const source = await backend.source({ poolSize: 1 }).initialize();
    const locks = await process({ dataSource: source });
    const held = await Promise.all(['a', 'b', 'c'].map((key) => locks.acquire(key)));
    await source.query('SELECT 1');
    await Promise.all(held.map((lock) => lock.release()));
    await locks.stop();
    await source.query('SELECT 1');
    await source.destroy();
    const provider = new TypeOrmRowLockProvider({ dataSource: backend.source(), table: 'no_such_table' });
    await expect(process({}, provider)).rejects.toBeInstanceOf(LockConfigError);
  });

  it('diagnose() reports nothing for a single server', async () => {
    const locks = await process();
    expect(await locks.admin.diagnose()).toEqual([]);
  });

  it('purge() walks a large table in parts, and deletes only unused rows', async () => {
    const provider = await backend.provider();
    const locks = await process({}, provider);
    const never = '9000000000000000';
    // Every hundredth row is unused.
    await backend.admin.query(
      `INSERT INTO ${TABLE} (name, expires) SELECT CONCAT('many:', n), CASE WHEN MOD(n, 100) = 0 THEN 1 ELSE ${never} END FROM (${NUMBERS[type](12_000)}) AS made`,
    );
    const before = await locks.acquire('during');
    expect(await locks.admin.purge({ unusedFor: '1h' })).toBe(120);
    expect(await before.release()).toBe('released');
    expect(await locks.admin.purge({ unusedFor: '1h' })).toBe(0);
    await backend.admin.query(`DELETE FROM ${TABLE} WHERE name LIKE 'many:%'`);
  });

  it('a failed purge throws a LockError, and the locks keep working', async () => {
    await process();
    // With `synchronize`, it would create the table again.
    const locks = await process({ synchronize: false });
    await backend.admin.query(`ALTER TABLE ${TABLE} RENAME TO hidden`);
    try {
      await expect(locks.admin.purge({ unusedFor: '1h' })).rejects.toBeInstanceOf(LockError);
    } finally {
      await backend.admin.query(`ALTER TABLE hidden RENAME TO ${TABLE}`);
    }
    await (await locks.acquire('next')).release();
  });

  it('fencing tokens of one counter are counted together, and a locked counter delays only its own keys', async () => {
    const locks = await process({ fencing: true, maxConnections: 20 });
    const keys = Array.from({ length: 64 }, (_, index) => `fenced:${index}`);
    const tokens = async (of: readonly string[]) =>
      Promise.all(
        of.map((key) => locks.withLock(key, (lock) => [counterNameOf('test', key), lock.fencingToken!] as const)),
      );
    const first = await tokens(keys);
    const second = await tokens(keys);
    // Each token is larger than all earlier ones of its counter, and no two are equal.
    for (const counter of new Set(first.map(([name]) => name))) {
      const of = (round: typeof first) => round.filter(([name]) => name === counter).map(([, token]) => token);
      expect(new Set([...of(first), ...of(second)]).size).toBe(of(first).length + of(second).length);
      expect(of(second).every((token) => of(first).every((earlier) => token > earlier))).toBe(true);
    }
    const runner = backend.admin.createQueryRunner();
    await runner.startTransaction();
    const blocked = counterNameOf('test', keys[0]!);
    await runner.query(`SELECT 1 FROM ${TABLE} WHERE name = '${blocked}' FOR UPDATE`);
    const late = tokens([keys[0]!]);
    await tokens(keys.filter((key) => counterNameOf('test', key) !== blocked));
    await runner.rollbackTransaction();
    await runner.release();
    expect((await late)[0]![1]).toBeGreaterThan(second[0]![1]);
  });

  if (type === 'postgres') {
    // pg plans to remove the queue that would otherwise put statements in order.
    it('sends one statement at a time on each connection, however many locks are acquired concurrently', async () => {
      const running = new Map<object, number>();
      let most = 0;
      const observer: Observer = (_sql, _values, answered, connection) => {
        const count = (running.get(connection) ?? 0) + 1;
        running.set(connection, count);
        most = Math.max(most, count);
        void answered.then(() => running.set(connection, running.get(connection)! - 1));
        return undefined;
      };
      const provider = await backend.wired((plain) => {
        const dataSource = observed(plain, observer);
        return new TypeOrmRowLockProvider({ dataSource, fencing: true, maxConnections: 20, commandTimeout: '10s' });
      });
      const locks = await process({}, provider);
      const keys = Array.from({ length: 32 }, (_, index) => `new:${index % 16}`);
      await Promise.all(keys.map((key) => locks.withLock(key, () => undefined)));
      expect(running.size).toBeGreaterThan(2);
      expect(most).toBe(1);
    });
  }

  it('a server crash loses the locks, and the server is used again', async () => {
    const locks = await process();
    const lock = await locks.acquire('a');
    await backend.server.crash();
    await untilLost(lock);
    expect(lock.isHeld()).toBe(false);
    await (await locks.acquire('a')).release();
    expect(await lock.release()).toBe('lost');
  }, 120_000);
});
