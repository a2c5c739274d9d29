import { afterAll, beforeAll, jest } from '@jest/globals';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';
import { type DataSource, type EntityManager, QueryFailedError } from 'typeorm';
import type { LockManager } from '../../lib/engine/lock-manager.js';
import { LockConfigError, LockUnavailableError } from '../../lib/lock/errors.js';
import type { Lock } from '../../lib/lock/lock.js';
import { entityManagerOf } from '../../lib/providers/typeorm/index.js';
import { counterNameOf, rowNameOf } from '../../lib/providers/typeorm/lock-name.js';
import { startTcpProxy } from '../servers/tcp-proxy.js';
import { startWithAccounts } from './accounts.js';
import { LockProcesses } from './lock-processes.js';
import { type SqlBackend, TABLE } from './sql-backend.js';
import { statementsAtOnce } from './statements-at-once.js';

/** For tests that wait until a guard has passed. */
const SHORT_GUARD = 3_000;

// Row locks in the application's own transaction, when that does not go as it should.
describe.each(['mariadb', 'postgres'] as const)('row locks in transactions of the application on %s', (type) => {
  const isPostgres = type === 'postgres';
  let backend: SqlBackend;
  let source: DataSource;
  const processes = new LockProcesses();

  beforeAll(async () => {
    ({ backend, source } = await startWithAccounts(type));
  }, 60_000);
  afterEach(() => processes.stop());
  afterAll(async () => {
    await source.destroy();
    await backend.stop();
  });

  const process = async (options: object = {}) => processes.start(await backend.provider(options));
  const value = isPostgres ? '$1' : '?';
  const rollBack = () => Promise.reject(new Error('of the application'));
  const waits = (locks: LockManager) => new Promise((resolve) => void locks.events.on('waiting', resolve));
  const told = (lock: Lock) => lock.signal.aborted || once(lock.signal, 'abort');

  describe('nested transactions', () => {
    it('a lock that was taken in one that is rolled back is lost at once, and another may have it', async () => {
      const [ann, bob] = [await process(), await process()];
      await source.transaction(async (outer) => {
        let lock: Lock | undefined;
        const nested = outer.transaction(async (transaction) => {
          lock = await ann.acquire('nested', { transaction });
          await rollBack();
        });
        await expect(nested).rejects.toThrow('of the application');
        expect(lock?.isHeld()).toBe(false);
        expect(lock?.signal.aborted).toBe(true);
        // Both servers have freed it: the transaction had done nothing before.
        await using other = await bob.acquire('nested', { wait: 0 });
        expect(other.isHeld()).toBe(true);
      });
    });

    it('one that was taken before it, or in one that was committed, outlives the rollback', async () => {
      const [ann, bob] = [await process(), await process()];
      await source.transaction(async (outer) => {
        const before = await ann.acquire('before', { transaction: outer });
        const within = await outer.transaction((transaction) => ann.acquire('within', { transaction }));
        await expect(outer.transaction(rollBack)).rejects.toThrow('of the application');
        for (const lock of [before, within]) {
          expect(lock.isHeld()).toBe(true);
          expect(await bob.tryAcquire(lock.key)).toBeNull();
        }
        await outer.query('SAVEPOINT mine');
        const after = await ann.acquire('after', { transaction: outer });
        await outer.query('ROLLBACK TO SAVEPOINT mine');
        expect([before, within, after].map((lock) => lock.isHeld())).toEqual([true, true, false]);
      });
    });
  });

  it('a lock whose transaction is cut off from the server is lost when the guard has passed', async () => {
    const ann = await process({ sessionGuard: SHORT_GUARD });
    const wire = await startTcpProxy(backend.server.port);
    const own = await backend.source({}, wire.port).initialize();
    const runner = own.createQueryRunner();
    await runner.startTransaction();
    const lock = await ann.acquire('cut', { transaction: runner.manager });
    wire.freeze();
    const cutAt = performance.now();
    await told(lock);
    // The guard is 3 s, and the default is 30 s.
    expect(performance.now() - cutAt).toBeLessThan(20_000);
    await wire.close();
    await runner.release().catch(() => undefined);
    await own.destroy().catch(() => undefined);
  }, 60_000);

  it('an attempt that is silent for so long that the application goes on leaves its statements alone', async () => {
    const ann = await process({ statementTimeout: '1s' });
    const wire = await startTcpProxy(backend.server.port);
    const own = await backend.source({}, wire.port).initialize();
    const balance = async () => (await source.query<object[]>('SELECT balance FROM account WHERE id = 1'))[0];
    const write = (amount: number) => `UPDATE account SET balance = ${amount} WHERE id = 1`;
    /** Works in a transaction whose attempt at a lock is stuck in its first statement until the work has been sent. */
    const beside = (work: (transaction: EntityManager) => Promise<unknown>) =>
      own.transaction(async (transaction) => {
        await transaction.query('SELECT 1');
        wire.freeze();
        const attempt = ann.acquire('silent', { transaction, wait: 6_000 }).catch((error: unknown) => error);
        await sleep(100);
        const done = work(transaction);
        // Longer than a statement is waited for.
        await sleep(2_000);
        wire.thaw();
        await done;
        return attempt;
      });
    await ann.withLock('silent', () => undefined);
    // Asked for again.
    await beside((transaction) => transaction.transaction((nested) => nested.query(write(1))));
    expect(await balance()).toEqual({ balance: 1 });
    // The server refuses to lock the row, and the savepoint that the attempt goes back to is older than the write.
    const hide = `ALTER TABLE ${TABLE} RENAME TO hidden`;
    const refused = await beside((transaction) => Promise.all([transaction.query(write(2)), source.query(hide)]));
    expect(refused).toBeInstanceOf(LockUnavailableError);
    await source.query(`ALTER TABLE hidden RENAME TO ${TABLE}`);
    expect(await balance()).toEqual({ balance: 2 });
    await source.query(write(0));
    await own.destroy();
    await wire.close();
  }, 60_000);

  it('it outlives many guards while the server answers, with statements of the application or without', async () => {
    const ann = await process({ sessionGuard: SHORT_GUARD });
    const outlive = (key: string, work: (transaction: EntityManager) => Promise<unknown>) =>
      source.transaction(async (transaction) => {
        const lock = await ann.acquire(key, { transaction });
        for (const end = performance.now() + 2 * SHORT_GUARD; performance.now() < end;) await work(transaction);
        expect(lock.isHeld()).toBe(true);
      });
    await Promise.all([
      outlive('busy', (transaction) => transaction.query('SELECT 1')),
      outlive('idle', () => sleep(SHORT_GUARD)),
    ]);
  }, 60_000);

  if (isPostgres) {
    it('a savepoint that has ended with an older one is no more, whatever its name is taken for later', async () => {
      const [ann, bob] = [await process(), await process()];
      const isFree = (key: string) => bob.withLock(key, () => true, { wait: 0 });
      await source.transaction(async (transaction) => {
        await transaction.query('SAVEPOINT old');
        const shadowed = await ann.acquire('shadowed', { transaction });
        for (const sql of ['SAVEPOINT mine', 'SAVEPOINT old', 'ROLLBACK TO SAVEPOINT mine'])
          await transaction.query(sql);
        expect(shadowed.isHeld()).toBe(true);
        // The one from before the lock: the other has ended.
        await transaction.query('ROLLBACK TO SAVEPOINT old');
        expect(shadowed.isHeld()).toBe(false);
        expect(await isFree('shadowed')).toBe(true);
        const around = await ann.acquire('around', { transaction });
        for (const sql of ['SAVEPOINT mine', 'RELEASE SAVEPOINT old']) await transaction.query(sql);
        await expect(transaction.query('SELECT * FROM nowhere')).rejects.toThrow('nowhere');
        await told(around);
        expect(await isFree('around')).toBe(true);
      });
    });

    it.each(['END', 'ABORT'])('%s is an end too', async (end) => {
      const [ann, bob] = [await process(), await process()];
      const runner = source.createQueryRunner();
      await runner.startTransaction();
      const lock = await ann.acquire('ended', { transaction: runner.manager });
      await runner.query(end);
      expect(lock.isHeld()).toBe(false);
      await (await bob.acquire('ended', { wait: 0 })).release();
      await runner.release();
    });

    it('an error is known by more than a word, which the server may say in another language', async () => {
      const [ann, bob] = [await process(), await process()];
      const { query } = Client.prototype;
      // What a server with lc_messages = 'de_DE' answers.
      const translate = (error: unknown) => {
        throw Object.assign(error as Error, { severity: 'FEHLER' });
      };
      const spy = jest.spyOn(Client.prototype, 'query').mockImplementation(function (this: Client, ...args: unknown[]) {
        const answer: unknown = Promise.resolve(Reflect.apply(query, this, args) as unknown).catch(translate);
        return answer;
      });
      try {
        await source.transaction(async (transaction) => {
          const lock = await ann.acquire('translated', { transaction });
          await expect(transaction.query('SELECT * FROM nowhere')).rejects.toThrow('nowhere');
          await told(lock);
          await (await bob.acquire('translated', { wait: 0 })).release();
        });
      } finally {
        spy.mockRestore();
      }
    });

    it('a heartbeat is never sent while a statement of the application is under way, nor the other way round', async () => {
      const { most } = await statementsAtOnce(async () => {
        const ann = await process({ sessionGuard: SHORT_GUARD });
        await source.transaction(async (transaction) => {
          const first = await ann.acquire('first', { transaction });
          // A heartbeat is due each second.
          const slow = transaction.query('SELECT pg_sleep(1.5)');
          const second = ann.acquire('second', { transaction });
          await slow;
          await second;
          for (let count = 0; count < 60; count += 1) {
            await transaction.query('SELECT pg_sleep(0.03)');
            await sleep(30);
          }
          expect(first.isHeld()).toBe(true);
        });
      });
      expect(most).toBe(1);
    });

    it('what fails undoes the transaction since its last savepoint, and the locks in that are lost', async () => {
      const [ann, bob] = [await process(), await process()];
      const fail = (transaction: EntityManager) =>
        expect(transaction.query('SELECT * FROM nowhere')).rejects.toThrow('nowhere');
      await source.transaction(async (transaction) => {
        const lock = await ann.acquire('outside', { transaction });
        await expect(transaction.transaction((nested) => fail(nested).then(rollBack))).rejects.toThrow();
        expect(lock.isHeld()).toBe(true);
        expect(await bob.tryAcquire('outside')).toBeNull();
      });
      await source.transaction(async (transaction) => {
        const lock = await ann.acquire('failed', { transaction });
        await fail(transaction);
        await told(lock);
        expect(lock.isHeld()).toBe(false);
        await (await bob.acquire('failed', { wait: 0 })).release();
      });
    });

    it('a task that ends by what has failed rejects with that, and no loss is told', async () => {
      const ann = await process();
      const lost = jest.fn();
      ann.events.on('lost', lost);
      const task = source.transaction((transaction) =>
        ann.withLock('failing', () => transaction.query('SELECT * FROM nowhere'), { transaction }),
      );
      await expect(task).rejects.toBeInstanceOf(QueryFailedError);
      await sleep(5);
      expect(lost).not.toHaveBeenCalled();
    });
  }

  it('a deadlock that the application catches is a lock that is lost', async () => {
    const ann = await process();
    const runners = [source.createQueryRunner(), source.createQueryRunner()] as const;
    const update = async (manager: EntityManager, id: number) => {
      await manager.query(`UPDATE account SET balance = balance + 1 WHERE id = ${id}`);
    };
    const locks: Lock[] = [];
    for (const [index, runner] of runners.entries()) {
      await runner.startTransaction();
      locks.push(await ann.acquire(`deadlock:${index}`, { transaction: runner.manager }));
      await update(runner.manager, index + 1);
    }
    const crossed = [update(runners[0].manager, 2), update(runners[1].manager, 1)];
    const outcomes = await Promise.allSettled(
      crossed.map((work, index) =>
        // The victim's rollback frees the other one.
        work.catch(async (error: unknown) => {
          const lock = locks[index]!;
          // MySQL would run what follows without a transaction.
          if (isPostgres) await told(lock);
          const isHeld = lock.isHeld();
          await runners[index]?.rollbackTransaction();
          throw isHeld ? new Error('It is taken for held.') : error;
        }),
      ),
    );
    const failed = outcomes.filter((outcome) => outcome.status === 'rejected');
    expect(failed.map(({ reason }) => String(reason))).toEqual([expect.stringMatching(/deadlock/i)]);
    for (const runner of runners) {
      if (runner.isTransactionActive) await runner.rollbackTransaction();
      await runner.release();
    }
  });

  it('a transaction that ends while its lock is being granted has no lock', async () => {
    const [ann, bob] = [await process({ fencing: true }), await process()];
    // The first one makes the rows.
    await ann.withLock('early', () => undefined);
    const runner = source.createQueryRunner();
    await runner.startTransaction();
    const asked = await backend.admin.transaction(async (operator) => {
      // Who counts the token waits.
      await operator.query(`SELECT 1 FROM ${TABLE} WHERE name = ${value} FOR UPDATE`, [counterNameOf('test', 'early')]);
      const attempt = ann.acquire('early', { transaction: runner.manager }).catch((error: unknown) => error);
      for (let other = await bob.tryAcquire('early'); other; other = await bob.tryAcquire('early')) {
        await other.release();
        await sleep(5);
      }
      await runner.commitTransaction();
      return { attempt };
    });
    expect(await asked.attempt).toBeInstanceOf(LockConfigError);
    await (await bob.acquire('early')).release();
    await runner.release();
  });

  it('a connection that has ended is a database that cannot be used, also in the middle of a wait', async () => {
    const [ann, bob] = [await process(), await process()];
    const own = await backend.source().initialize();
    const kill = async (transaction: EntityManager) => {
      const ask = `SELECT ${isPostgres ? 'pg_backend_pid' : 'CONNECTION_ID'}() AS id`;
      const [row] = await transaction.query<{ id: number }[]>(ask);
      await backend.admin.query(isPostgres ? `SELECT pg_terminate_backend(${row?.id})` : `KILL ${row?.id}`);
    };
    const dead = own.transaction(async (transaction) => {
      await kill(transaction);
      await ann.acquire('dead', { transaction, wait: 300 });
    });
    await expect(dead).rejects.toBeInstanceOf(LockUnavailableError);
    const held = await bob.acquire('dead');
    const killed = own.transaction(async (transaction) => {
      const waiting = waits(ann);
      const asked = ann.acquire('dead', { transaction, wait: 500 });
      await Promise.all([waiting.then(() => kill(transaction)), asked]);
    });
    await expect(killed).rejects.toBeInstanceOf(LockUnavailableError);
    await held.release();
    await own.destroy();
  });

  it('several locks can be asked for at once in one transaction, also while one is waited for', async () => {
    const [ann, bob] = [await process(), await process()];
    const held = await bob.acquire('busy');
    await source.transaction(async (transaction) => {
      const waiting = waits(ann);
      const late = ann.acquire('busy', { transaction });
      await waiting;
      const keys = ['one', 'two', 'three'];
      const locks = await Promise.all(keys.map((key) => ann.acquire(key, { transaction })));
      await held.release();
      for (const lock of [...locks, await late]) {
        expect(lock.isHeld()).toBe(true);
        expect(await bob.tryAcquire(lock.key)).toBeNull();
      }
    });
  });

  it('a lock can be asked for while a subscriber keeps a statement back that later ones have passed', async () => {
    const ann = await process();
    const own = await backend.source().initialize();
    own.subscribers.push({
      beforeQuery: async ({ query }) => {
        if (query.includes('balance')) await sleep(300);
      },
    });
    await own.transaction(async (transaction) => {
      await ann.acquire('first', { transaction });
      const slow = transaction.query('SELECT balance FROM account');
      await transaction.query('SELECT 1');
      // Once it spun here: a failure of this test is a process that hangs.
      const lock = await ann.acquire('second', { transaction });
      expect(lock.isHeld()).toBe(true);
      await slow;
    });
    await own.destroy();
  });

  it('a row that is purged while it is waited for is made again', async () => {
    const [ann, bob] = [await process(), await process()];
    const held = await bob.acquire('purged');
    // Under REPEATABLE READ of MariaDB an ask for what is just being deleted locks the gap, and keeps it.
    await source.transaction('READ COMMITTED', async (transaction) => {
      const waiting = waits(ann);
      const late = ann.acquire('purged', { transaction });
      await waiting;
      // Free and gone in one.
      await entityManagerOf(held).query(`DELETE FROM ${TABLE} WHERE name = ${value}`, [rowNameOf('test', 'purged')]);
      await held.release();
      expect((await late).isHeld()).toBe(true);
      expect(await bob.tryAcquire('purged')).toBeNull();
    });
  });

  it('many locks in one transaction listen to its connection once, and not any more when it has ended', async () => {
    const ann = await process();
    const own = await backend.source({ poolSize: 1 }).initialize();
    const counts: number[] = [];
    for (const round of ['first', 'second']) {
      await own.transaction(async (transaction) => {
        const connection = (await transaction.queryRunner?.connect()) as NodeJS.EventEmitter;
        const count = () => counts.push(connection.listenerCount('end'));
        count();
        await ann.acquire(
          Array.from({ length: 12 }, (_, index) => `${round}:${index}`),
          { transaction },
        );
        count();
      });
    }
    const [before = 0] = counts;
    expect(counts).toEqual([before, before + 1, before, before + 1]);
    await own.destroy();
  });
});
