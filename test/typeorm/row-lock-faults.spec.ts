import { setTimeout as sleep } from 'node:timers/promises';
import type { EntityManager } from 'typeorm';
import type { Lock } from '../../lib/api/lock.js';
import { LockCapacityError, LockLostError, LockUnavailableError } from '../../lib/api/errors.js';
import { entityManagerOf, TypeOrmRowLockProvider } from '../../lib/providers/typeorm/index.js';
import { faultOf } from '../../lib/providers/sql/connection/failure.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { contextFor } from '../backend-context.js';
import { request } from '../direct-backend.js';
import { AccountsRig, errorOf } from './accounts.js';
import { observed } from './observed-driver.js';
import { until } from '../until.js';
import { TABLE } from './sql-backend.js';

// How the servers themselves respond to faults, and what remains afterwards.
describe.each(['mariadb', 'postgres'] as const)('faults of row locks on %s', (type) => {
  const isPostgres = type === 'postgres';
  const rig = new AccountsRig(type);

  const process = async (provider?: TypeOrmRowLockProvider, options: object = {}) =>
    rig.processes.start(provider ?? (await rig.backend.provider(options)));
  const update = (manager: EntityManager, id: number, balance: number) =>
    manager.query(`UPDATE account SET balance = ${balance} WHERE id = ${id}`);
  const balances = async () =>
    (await rig.source.query<{ balance: number }[]>('SELECT balance FROM account ORDER BY id')).map(
      ({ balance }) => balance,
    );

  /** Makes two transactions wait for each other. Resolves to the one that the server rolled back. Both stay open. */
  async function deadlock(
    first: EntityManager,
    second: EntityManager,
  ): Promise<{ victim: EntityManager; error: unknown }> {
    await update(first, 1, 1);
    await update(second, 2, 2);
    const errors = [errorOf(update(first, 2, 1)), errorOf(update(second, 1, 2))] as const;
    const victim = await Promise.race([
      errors[0].then((error) => (error ? first : errors[1].then(() => second))),
      errors[1].then((error) => (error ? second : errors[0].then(() => first))),
    ]);
    const error = await (victim === first ? errors[0] : errors[1]);
    // On Postgres, the victim stays open but aborted. The other one continues either way.
    return { victim, error };
  }

  /** Runs `work` with two transactions of the application. */
  async function twoTransactions(work: (first: EntityManager, second: EntityManager) => Promise<void>): Promise<void> {
    const runners = [rig.source.createQueryRunner(), rig.source.createQueryRunner()] as const;
    try {
      for (const runner of runners) await runner.startTransaction();
      await work(runners[0].manager, runners[1].manager);
    } finally {
      for (const runner of runners) {
        await runner.rollbackTransaction();
        await runner.release();
      }
    }
  }

  it('classifies the errors of the server', async () => {
    await twoTransactions(async (first, second) => {
      await update(first, 1, 1);
      const busy = isPostgres
        ? [
            'SAVEPOINT s',
            'SELECT 1 FROM account WHERE id = 1 FOR UPDATE NOWAIT', // 55P03
            'ROLLBACK TO SAVEPOINT s',
            `SET LOCAL lock_timeout = '500ms'`,
            'SELECT 1 FROM account WHERE id = 1 FOR UPDATE', // 55P03
            'ROLLBACK TO SAVEPOINT s',
            `SET LOCAL statement_timeout = '500ms'`,
            'SELECT 1 FROM account WHERE id = 1 FOR UPDATE', // 57014
            'ROLLBACK TO SAVEPOINT s',
          ]
        : [
            'SELECT 1 FROM account WHERE id = 1 FOR UPDATE NOWAIT', // 1205, 3572
            // 1969, 3024
            '/*M! SET STATEMENT max_statement_time = 0.5 FOR */ SELECT /*+ MAX_EXECUTION_TIME(500) */ 1 FROM account WHERE id = 1 FOR UPDATE',
          ];
      const failures = [];
      for (const sql of busy) {
        const error = await errorOf(second.query(sql));
        if (error) failures.push(faultOf(error));
      }
      expect(failures).toEqual(isPostgres ? ['busy', 'busy', 'busy'] : ['busy', 'busy']);
    });
    await twoTransactions(async (first, second) => {
      const { error } = await deadlock(first, second); // 1213, 40P01
      expect(faultOf(error)).toBe('rolled-back');
    });
    expect(faultOf(await errorOf(rig.source.query('SELECT 1 FROM no_such_table')))).toBe('no-table');
    expect(faultOf(await errorOf(rig.source.query('SELEC')))).toBe('refused');
  });

  if (isPostgres) {
    describe('a canceled heartbeat', () => {
      // The lock's sessions find this function before the server's own one.
      beforeAll(async () => {
        await rig.source.query('CREATE SCHEMA slow');
        await rig.source.query('CREATE TABLE slow.switch (id INT)');
        await rig.source.query(
          `CREATE FUNCTION slow.pg_is_in_recovery() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
            IF EXISTS (SELECT 1 FROM slow.switch) THEN PERFORM pg_sleep(600); END IF; RETURN false; END $$`,
        );
      });
      afterEach(() => rig.source.query('DELETE FROM slow.switch'));

      const start = () => process(undefined, { connectionInitSql: ['SET search_path = slow, pg_catalog, public'] });
      /** Cancels a heartbeat while the server executes it. */
      async function cancelHeartbeat(lock: Lock): Promise<void> {
        await rig.source.query('INSERT INTO slow.switch VALUES (1)');
        const renewal = errorOf(lock.extend());
        const cancel = `SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'`;
        await until(async () => (await rig.source.query<unknown[]>(cancel)).length > 0, 'a heartbeat is canceled');
        await rig.source.query('DELETE FROM slow.switch');
        await renewal;
      }

      it('ends the lock, whose row the server frees together with the failed transaction', async () => {
        const [ann, bob] = [await start(), await process()];
        const lock = await ann.acquire('a');
        await cancelHeartbeat(lock);
        expect(lock.isHeld()).toBe(false);
        await (await bob.acquire('a')).release();
        expect(await lock.release()).toBe('lost');
      });

      it('keeps the lock if the task has sent a statement, because only what follows the savepoint fails', async () => {
        const [ann, bob] = [await start(), await process()];
        const lock = await ann.acquire('a');
        await entityManagerOf(lock).query('SELECT 1');
        await cancelHeartbeat(lock);
        await lock.extend();
        expect(await bob.tryAcquire('a')).toBeNull();
        expect(await lock.release({ rollback: true })).toBe('released');
      });
    });
  }

  it("the guard frees the row of a holder that is cut off, which can't write when it is back", async () => {
    // The server frees the row after the guard, which both servers measure in whole seconds or more.
    const provider = await rig.backend.provider({ sessionGuard: '1s' });
    const [frozen, other] = [await process(provider), await process()];
    let isCutOff = false as boolean;
    // A machine that is busy for a second loses the lock before the test cuts it off.
    while (!isCutOff) {
      const task = frozen.withLock('a', async (lock) => {
        const manager = entityManagerOf(lock);
        await update(manager, 1, 1);
        rig.backend.wireOf(provider)?.freeze();
        isCutOff = true;
        await other.withLock('a', (next) => update(entityManagerOf(next), 1, 2));
        expect(lock.isHeld()).toBe(false);
        rig.backend.wireOf(provider)?.thaw();
        await expect(update(manager, 1, 3)).rejects.toThrow();
      });
      await expect(task).rejects.toBeInstanceOf(LockLostError);
    }
    expect(await balances()).toEqual([2, 0]);
  }, 90_000);

  it('the guard frees the row of a holder that is cut off while its statement waits for a lock', async () => {
    const provider = await rig.backend.provider({ sessionGuard: '2s' });
    const [holder, other] = [await process(provider), await process()];
    await twoTransactions(async (foreign) => {
      await update(foreign, 1, 1);
      const lock = await holder.acquire('a');
      const waiting = errorOf(update(entityManagerOf(lock), 1, 2));
      await rig.backend.untilWaiting(1);
      const wire = rig.backend.wireOf(provider);
      // The server doesn't see either that the holder closes its connections, and new ones get no answer.
      wire?.drop();
      wire?.freeze();
      // The other transaction stays open.
      await (await other.acquire('a')).release();
      expect(lock.isHeld()).toBe(false);
      expect(await waiting).toBeDefined();
    });
  }, 90_000);

  it('ten callers that nest two locks on two connections each end with both locks or with a capacity error', async () => {
    const locks = await process(undefined, { maxConnections: 2 });
    const nested = Array.from({ length: 10 }, (_, index) =>
      locks.withLock(`outer:${index}`, () => locks.withLock(`z-inner:${index}`, () => sleep(5), { wait: 200 }), {
        wait: 10_000,
      }),
    );
    const reasons = (await Promise.allSettled(nested)).filter((outcome) => outcome.status === 'rejected');
    for (const { reason } of reasons) expect(reason).toBeInstanceOf(LockCapacityError);
    await (await locks.acquire('after', { wait: 0 })).release();
    expect(await rig.backend.untilTransactions(0)).toBe(0);
  });

  it('a caller that leaves as soon as it waits gets busy, even if the connections close at that moment', async () => {
    const provider = await rig.backend.provider();
    const [holder, backend] = [provider.createBackend(contextFor()), provider.createBackend(contextFor())];
    expect(await holder.acquire(request('left'))).not.toBe('busy');
    let closed: Promise<void> | undefined;
    const leaving = request('left', {
      waits: () => {
        leaving.abort();
        closed = backend.close();
      },
    });
    expect(await backend.acquire(leaving)).toBe('busy');
    await Promise.all([closed, holder.close()]);
  });

  it('a release that an operator cancels leaves no lock on its connection', async () => {
    const canceled = isPostgres ? { code: '57014' } : { errno: 1317, code: 'ER_QUERY_INTERRUPTED', sqlState: '70100' };
    let isCanceled = false;
    const dataSource = observed(rig.backend.source(), (sql) => {
      if (sql !== 'ROLLBACK' || !isCanceled) return undefined;
      isCanceled = false;
      return Promise.reject(Object.assign(new Error('canceled'), canceled));
    });
    const ann = await process(new TypeOrmRowLockProvider({ dataSource, synchronize: true, sessionGuard: '10m' }));
    const bob = await process();
    const lock = await ann.acquire('a');
    isCanceled = true;
    await lock.release();
    expect(isCanceled).toBe(false);
    // An idle connection would keep it for 200 s.
    await (await bob.acquire('a')).release();
  });

  it('a caller that leaves before its first statement has a reply leaves no connection behind', async () => {
    const time = new FakeClock();
    const provider = await rig.backend.provider({ maxConnections: 1, commandTimeout: '1h' });
    const locks = await rig.processes.start(provider, { clock: time });
    await (await locks.acquire('a')).release();
    rig.backend.wireOf(provider)?.freeze();
    const departure = new AbortController();
    const left = locks.acquire('a', { signal: departure.signal });
    await time.advance(50);
    departure.abort(new Error('gone'));
    await expect(left).rejects.toThrow('gone');
    // Advances until the statement counts as unanswered.
    await time.advance(3_600_000);
    rig.backend.wireOf(provider)?.thaw();
    await (await locks.acquire('a')).release();
  });

  it.each([
    ['row', () => rig.backend.provider({ commandTimeout: '1s' }), () => rig.backend.lockedRows('lock')],
    ['advisory', () => rig.backend.advisoryProvider({ commandTimeout: '1s' }), () => rig.backend.advisoryLocks('lock')],
  ])('an attempt is not busy because of its own %s lock, whose reply was lost', async (_, start, lockedKeys) => {
    // A MariaDB that seems to be younger than the session would count as restarted.
    const uptime = `SHOW GLOBAL STATUS LIKE 'Uptime'`;
    const isOld = async () => Number((await rig.source.query<{ Value: string }[]>(uptime))[0]?.Value) > 3;
    await until(() => isPostgres || isOld(), 'the server is up for seconds');
    const time = new FakeClock();
    const provider = await start();
    const backend = provider.createBackend(contextFor([], { clock: time }));
    await backend.connect();
    const warm = request('own', { wait: 0 });
    expect(await backend.acquire(warm)).not.toBe('busy');
    expect(await backend.release(warm, { keepFor: 0, failed: false })).toBe('released');

    // The server locks the key, and a NAT then drops all connections.
    const wire = rig.backend.wireOf(provider);
    wire?.loseReplies();
    const own = request('own', { wait: 0 });
    const late = errorOf(backend.acquire(own));
    await until(async () => (await lockedKeys()) > 0, 'the server has locked the key');
    wire?.drop();
    wire?.passReplies();
    await time.advance(1_000);
    expect(await late).toBeInstanceOf(LockUnavailableError);
    expect(await errorOf(backend.acquire(own))).toBeInstanceOf(LockUnavailableError);
    expect(backend.unansweredFor?.(own)).toBeGreaterThanOrEqual(1_000);

    // The connection that was to end the session has failed too, so a new one ends it.
    await time.advance(1_000);
    const isGranted = async () => typeof (await backend.acquire(own).catch(() => 'busy')) === 'object';
    await until(isGranted, 'the lost attempt has ended');
    // The dropped connections don't end before their time.
    const closed = backend.close();
    await time.advance(1_000);
    await closed;
  });

  it('callers without a connection get no capacity error while the server is silent', async () => {
    const provider = await rig.backend.provider({ maxConnections: 2, commandTimeout: '1s' });
    const locks = await process(provider);
    const failures = async () => {
      const attempts = Array.from({ length: 10 }, (_, index) => locks.acquire(`key:${index}`, { wait: 0 }));
      const failed = (await Promise.allSettled(attempts)).filter((outcome) => outcome.status === 'rejected');
      return new Set(failed.map(({ reason }) => (reason as Error).name));
    };
    rig.backend.wireOf(provider)?.freeze();
    await expect(locks.acquire('a', { wait: 0 })).rejects.toThrow(LockUnavailableError);
    expect(await failures()).toEqual(new Set(['LockUnavailableError']));
    rig.backend.wireOf(provider)?.thaw();
    await (await locks.acquire('a')).release();
    expect(await failures()).toEqual(new Set(['LockCapacityError']));
  }, 60_000);

  it('purge() under a lock that has the only connection opens its own', async () => {
    const provider = await rig.backend.provider({ maxConnections: 1 });
    const locks = await process(provider);
    await locks.withLock('old', () => undefined);
    await rig.source.query(`UPDATE ${TABLE} SET expires = 1`);
    expect(await locks.withLock('nightly', () => locks.admin.purge({ unusedFor: '1s' }))).toBeGreaterThan(0);
  });

  it('locks that were released, busy, cancelled, failed or nested leave nothing on a connection', async () => {
    const [ann, bob] = [await process(), await process()];
    const held = await ann.acquire('a');
    expect(await bob.tryAcquire('a')).toBeNull();
    await expect(bob.acquire('a', { signal: AbortSignal.timeout(50) })).rejects.toThrow();
    await expect(bob.acquire('a', { wait: 50 })).rejects.toThrow();
    await expect(bob.withLock('b', () => Promise.reject(new Error('of the task')))).rejects.toThrow('of the task');
    await bob.withLock('c', (within) => bob.withLock('c', () => undefined, { within }));
    await held.release();
    expect(await rig.backend.untilTransactions(0)).toBe(0);
    expect(await rig.backend.lockedRows('test')).toBe(0);
  });
});
