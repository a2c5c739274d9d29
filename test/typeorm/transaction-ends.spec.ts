import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { DataSource, type EntityManager } from 'typeorm';
import { entityManagerOf, TypeOrmRowLockProvider } from '../../lib/providers/typeorm/index.js';
import { AccountsRig, errorOf } from './accounts.js';
import type { SqlType } from './sql-backend.js';

const ENDED = 'The lock transaction has ended, so this statement was not executed.';

interface Ends {
  /** Ends that the server reports in its reply or at the next heartbeat. */
  readonly early: readonly string[];
  /**
   * Statements that replace the lock's transaction with another one. Only the savepoint before the COMMIT detects this.
   */
  readonly atCommit: readonly string[];
  /** Statements that end no transaction on this server. */
  readonly never: readonly string[];
}

const ENDS: Record<SqlType, Ends> = {
  mariadb: {
    early: [
      ...['commit', 'COMMIT;', 'COMMIT WORK', '/* a comment */ COMMIT', 'ROLLBACK', 'CALL commits()'],
      ...['TRUNCATE scratch', 'ANALYZE TABLE scratch', 'FLUSH TABLES', 'CREATE TABLE IF NOT EXISTS made (id INT)'],
    ],
    atCommit: [
      'LOCK TABLES scratch WRITE',
      'CALL writes()',
      'COMMIT AND CHAIN',
      'ROLLBACK AND CHAIN',
      'BEGIN',
      'START TRANSACTION',
      'CALL goes_on()',
    ],
    never: ['SELECT 1', 'SAVEPOINT own', 'UPDATE account SET balance = 0 WHERE id = 7'],
  },
  postgres: {
    early: ['commit', 'COMMIT;', 'COMMIT WORK', '/* a comment */ COMMIT', 'ROLLBACK', 'END', 'ABORT'],
    atCommit: ['COMMIT AND CHAIN', 'ROLLBACK AND CHAIN', 'CALL commits()'],
    never: [
      'SELECT 1',
      'SAVEPOINT own',
      'BEGIN',
      'START TRANSACTION',
      'TRUNCATE scratch',
      'CREATE TABLE made (id INT)',
      'ANALYZE scratch',
    ],
  },
};

const PROCEDURES: Record<SqlType, readonly string[]> = {
  mariadb: [
    'CREATE PROCEDURE commits() COMMIT',
    'CREATE PROCEDURE goes_on() BEGIN COMMIT; START TRANSACTION; END',
    'CREATE PROCEDURE writes() BEGIN COMMIT; INSERT INTO written VALUES (7); END',
  ],
  // It fails in a transaction, which can then only be rolled back.
  postgres: ['CREATE PROCEDURE commits() LANGUAGE plpgsql AS $$ BEGIN COMMIT; END $$'],
};

// Statements that the application should not execute in its lock's transaction.
describe.each(['mariadb', 'postgres'] as const)('the transaction of a row lock on %s', (type) => {
  const isPostgres = type === 'postgres';
  const rig = new AccountsRig(
    type,
    ['CREATE TABLE scratch (id INT)', 'CREATE TABLE written (step INT NOT NULL)', ...PROCEDURES[type]],
    ['DELETE FROM written'],
  );

  const start = async (options: object = {}) => rig.processes.start(await rig.backend.provider(options));
  /** With the application's DataSource and its subscribers. */
  const startOn = (app: DataSource, options: object = {}) =>
    rig.processes.start(
      new TypeOrmRowLockProvider({ dataSource: app, synchronize: true, commandTimeout: '10s', ...options }),
    );
  const write = (manager: EntityManager, step: number) => manager.query(`INSERT INTO written VALUES (${step})`);
  const update = (manager: EntityManager, id: number) =>
    manager.query(`UPDATE account SET balance = balance + 1 WHERE id = ${id}`);
  const steps = async () =>
    (await rig.source.query<{ step: number }[]>('SELECT step FROM written ORDER BY step')).map(({ step }) => step);

  it.each(ENDS[type].early)('%s: the lock is lost by the next heartbeat, and no later statement runs', async (sql) => {
    const [ann, bob] = [await start(), await start()];
    const lock = await ann.acquire('a');
    const manager = entityManagerOf(lock);
    await errorOf(manager.query(sql));
    await errorOf(lock.extend());
    expect(lock.isHeld()).toBe(false);
    expect(lock.signal.aborted).toBe(true);
    await expect(write(manager, 1)).rejects.toThrow(ENDED);
    expect(await lock.release()).toBe('lost');
    await (await bob.acquire('a')).release();
    expect(await steps()).toEqual([]);
  });

  it.each(ENDS[type].atCommit)('%s: nothing written after it is committed', async (sql) => {
    const locks = await start();
    const task = locks.withLock('a', async (lock) => {
      const manager = entityManagerOf(lock);
      await manager.query('SELECT 1');
      await errorOf(manager.query(sql));
      await errorOf(write(manager, 2));
    });
    // A procedure can't commit in a Postgres transaction, so it fails.
    const reason = isPostgres && sql.startsWith('CALL') ? 'rolled-back' : 'revoked';
    await expect(task).rejects.toMatchObject({ code: 'LOCK_LOST', reason });
    expect(await steps()).toEqual([]);
    // The same connection or another one serves the next lock.
    await locks.withLock('a', (lock) => write(entityManagerOf(lock), 3));
    expect(await steps()).toEqual([3]);
  });

  it.each(ENDS[type].never)('%s: the lock stays', async (sql) => {
    const locks = await start();
    await locks.withLock('a', async (lock) => {
      const manager = entityManagerOf(lock);
      await write(manager, 1);
      await manager.query(sql);
      await lock.extend();
      await write(manager, 2);
    });
    expect(await steps()).toEqual([1, 2]);
  });

  it('a statement concurrent with one that ends in a deadlock is not committed without the lock', async () => {
    const locks = await start();
    for (let round = 0; round < 3; round += 1) {
      const rival = rig.source.createQueryRunner();
      await rival.startTransaction();
      // The server rolls back the transaction that has written less.
      for (let count = 0; count < 50; count += 1) await write(rival.manager, 9);
      await update(rival.manager, 2);
      let results: PromiseSettledResult<unknown>[] = [];
      const task = locks.withLock('a', async (lock) => {
        const manager = entityManagerOf(lock);
        await update(manager, 1);
        if (isPostgres) {
          // Each waiting transaction checks for a deadlock once. The lock's must find it, even if the rival starts to
          // wait late.
          await manager.query(`SET LOCAL deadlock_timeout = '1s'`);
          await rival.query(`SET LOCAL deadlock_timeout = '60s'`);
        }
        const both = Promise.allSettled([update(manager, 2), write(manager, 1)]);
        await rig.backend.untilWaiting(1);
        const crossed = errorOf(update(rival.manager, 1));
        results = await both;
        await rival.rollbackTransaction();
        await crossed;
      });
      await expect(task).rejects.toMatchObject({ code: 'LOCK_LOST' });
      expect(results.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
      await rival.release();
      expect(await steps()).toEqual([]);
    }
  });

  it('concurrent nested transactions are refused, and a transaction inside another is not', async () => {
    const locks = await start();
    await locks.withLock('a', async (lock) => {
      const manager = entityManagerOf(lock);
      const [first, second] = await Promise.allSettled([
        manager.transaction((nested) => write(nested, 1)),
        manager.transaction((nested) => write(nested, 2)),
      ]);
      expect(first.status).toBe('fulfilled');
      expect(second).toMatchObject({ reason: { message: expect.stringContaining('await it before') as string } });
      await manager.transaction((outer) => outer.transaction((inner) => write(inner, 3)));
    });
    expect(await steps()).toEqual([1, 3]);
  });

  it('a subscriber may query before each statement', async () => {
    const app = rig.backend.source();
    app.subscribers.push({
      beforeQuery: ({ query, queryRunner }) => (query.includes('INSERT') ? queryRunner.query('SELECT 1') : undefined),
    });
    const locks = await startOn(app);
    await locks.withLock('a', (lock) => Promise.all([1, 2].map((step) => write(entityManagerOf(lock), step))));
    expect(await steps()).toEqual([1, 2]);
  });

  if (isPostgres)
    it('a COMMIT of the task is a loss, not a rollback, with a pg that reports no transaction status', async () => {
      class OldClient extends pg.Client {
        override getTransactionStatus = () => null as never;
      }
      const { options } = rig.backend.source();
      const app = new DataSource({ ...options, driver: { ...pg, Client: OldClient } });
      const locks = await startOn(app);
      const task = locks.withLock('a', async (lock) => {
        const manager = entityManagerOf(lock);
        await write(manager, 1);
        await manager.query('COMMIT');
        await write(manager, 2);
      });
      await expect(task).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'revoked' });
      expect(await steps()).toEqual([1, 2]);
    });

  if (isPostgres) {
    describe('a slow COMMIT', () => {
      // As with a synchronous standby that lags: deferred triggers run in the COMMIT.
      beforeAll(async () => {
        await rig.source.query('CREATE TABLE slowly (id INT)');
        await rig.source.query(
          'CREATE FUNCTION sleep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(3); RETURN NULL; END $$',
        );
        await rig.source.query(
          'CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON slowly DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION sleep()',
        );
      });

      it('may take longer than a statement', async () => {
        const locks = await start({ commandTimeout: '1s' });
        await locks.withLock('a', (lock) => entityManagerOf(lock).query('INSERT INTO slowly VALUES (1)'));
        expect(await rig.source.query('SELECT * FROM slowly')).toHaveLength(1);
      });

      it('reports the outcome if its connection is ended while the server waits for a standby', async () => {
        const { admin } = rig.backend;
        const locks = await start();
        // Creates the row of the key in another commit.
        await locks.withLock('a', () => undefined);
        let step = 0;
        // No standby will ever confirm.
        await admin.query(`ALTER SYSTEM SET synchronous_standby_names = 'nobody'`);
        await admin.query('SELECT pg_reload_conf()');
        try {
          const end = `SELECT pg_terminate_backend(pid) AS ended FROM pg_stat_activity WHERE wait_event = 'SyncRep'`;
          let failure: unknown;
          // Commits wait only after the checkpointer has read the setting.
          while (failure === undefined) {
            step += 1;
            const task = locks.withLock('a', (lock) => write(entityManagerOf(lock), step));
            let outcome: PromiseSettledResult<void> | undefined;
            const settled = Promise.allSettled([task]).then(([result]) => (outcome = result));
            while (!outcome && (await admin.query<unknown[]>(end)).length === 0) await sleep(10);
            const result = await settled;
            if (result.status === 'rejected') failure = result.reason;
          }
          expect(failure).toMatchObject({ code: 'LOCK_LOST', reason: 'commit-unknown' });
        } finally {
          await admin.query('ALTER SYSTEM RESET synchronous_standby_names');
          await admin.query('SELECT pg_reload_conf()');
        }
        // The transaction was committed.
        expect((await steps()).at(-1)).toBe(step);
      });

      it('reports the outcome if the reply does not arrive in time', async () => {
        const locks = await start({ sessionGuard: '1s' });
        const task = locks.withLock('a', (lock) => entityManagerOf(lock).query('INSERT INTO slowly VALUES (2)'));
        await expect(task).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'commit-unknown' });
        await expect(task).rejects.toThrow('the server did not respond to its COMMIT');
      });
    });
  } else {
    it('a statement with a driver time limit is sent without it', async () => {
      const app = rig.backend.source({ enableQueryTimeout: true, maxQueryExecutionTime: 100 });
      const locks = await startOn(app);
      await locks.withLock('a', async (lock) => {
        await entityManagerOf(lock).query('SELECT SLEEP(0.5)');
        await write(entityManagerOf(lock), 1);
      });
      expect(await steps()).toEqual([1]);
    });
  }

  it('rejects a row stream with the reason', async () => {
    const locks = await start();
    await locks.withLock('a', async (lock) => {
      await write(entityManagerOf(lock), 1);
      await expect(entityManagerOf(lock).queryRunner?.stream('SELECT id FROM account')).rejects.toThrow(
        "Rows cannot be streamed in a lock's transaction",
      );
    });
    expect(await steps()).toEqual([1]);
  });

  const holder = isPostgres
    ? `SELECT client_port AS port FROM pg_stat_activity WHERE state = 'idle in transaction'`
    : `SELECT SUBSTRING_INDEX(p.host, ':', -1) AS port FROM information_schema.processlist p
       JOIN information_schema.innodb_trx t ON t.trx_mysql_thread_id = p.id`;

  const isUpForTwoSeconds = async () => {
    const [uptime] = await rig.source.query<{ Value: string }[]>(`SHOW GLOBAL STATUS LIKE 'Uptime'`);
    return Number(uptime?.Value) >= 2;
  };

  it.each([
    ['the connection has', (port: unknown) => Number(port)],
    ['all connections of the process have', () => undefined],
  ])('the server ends a session if %s broken only on the client side', async (_, forgotten) => {
    // The server reports its uptime in whole seconds, so connections of its first second can't be matched to the same
    // run.
    while (!isPostgres && !(await isUpForTwoSeconds()));
    const provider = await rig.backend.provider();
    const [ann, bob] = [await rig.processes.start(provider), await start()];
    const lock = await ann.acquire('a');
    let port: unknown;
    while (port === undefined) {
      // InnoDB refreshes its transaction table only if no query has read it for 100 ms.
      await sleep(150);
      [{ port } = { port: undefined }] = await rig.source.query<{ port?: unknown }[]>(holder);
    }
    rig.backend.wireOf(provider)?.forget(forgotten(port));
    // Otherwise the server would keep the session until the guard of ten minutes expires.
    await (await bob.acquire('a', { wait: '2m' })).release();
    expect(await lock.release()).toBe('lost');
    await (await ann.acquire('a')).release();
  });
});
