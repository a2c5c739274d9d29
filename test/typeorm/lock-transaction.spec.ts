import { type DataSource, type EntityManager, type EntitySubscriberInterface, Repository } from 'typeorm';
import { LockBusyError, LockLostError } from '../../lib/api/errors.js';
import type { Lock } from '../../lib/api/lock.js';
import { entityManagerOf, TypeOrmRowLockProvider } from '../../lib/providers/typeorm/index.js';
import { Account, AccountsRig, errorOf } from './accounts.js';

const ENDED = 'The lock transaction has ended';

// Only MariaDB reads the first comment, and only MySQL the second.
const IN_TRANSACTION =
  `/*M! @@in_transaction */ /*!80000 (SELECT AUTOCOMMIT = 'NO' ` +
  `FROM performance_schema.events_transactions_current WHERE THREAD_ID = ps_current_thread_id()) */`;

// The application writes through entityManagerOf() at the wrong moment.
describe.each(['mariadb', 'postgres'] as const)('the transaction of a row lock on %s', (type) => {
  const isPostgres = type === 'postgres';
  // Each write records its transaction: outside of one, it would record 0 or a number of its own.
  const write = `INSERT INTO written SELECT ${isPostgres ? 'txid_current()' : IN_TRANSACTION}`;
  const longStatement = isPostgres ? 'SELECT pg_sleep(60)' : 'SELECT SLEEP(60)';
  const rig = new AccountsRig(type, ['CREATE TABLE written (tx BIGINT NOT NULL)'], ['DELETE FROM written']);

  const process = async (options: object = {}) => rig.processes.start(await rig.backend.provider(options));
  const sharingSubscribers = (app: DataSource) =>
    new TypeOrmRowLockProvider({ dataSource: app, synchronize: true, commandTimeout: '10s' });
  const transactions = async () =>
    (await rig.source.query<{ tx: unknown }[]>('SELECT DISTINCT tx FROM written')).map(({ tx }) => Number(tx));

  /** Writes repeatedly until a write is refused. Resolves to the refusal. */
  function writing(manager: EntityManager): { first: Promise<unknown>; refusal: Promise<unknown> } {
    const first = manager.query(write);
    const goOn = async (): Promise<never> => {
      await first;
      for (;;) await manager.query(write);
    };
    return { first, refusal: goOn().catch((error: unknown) => error) };
  }

  it('a branch of the task that keeps running writes nothing after the ROLLBACK', async () => {
    const locks = await process();
    const error = new Error('of one branch');
    let refusal: Promise<unknown> = Promise.resolve();
    const task = locks.withLock('a', async (lock) => {
      const branch = writing(entityManagerOf(lock));
      refusal = branch.refusal;
      await branch.first;
      throw error;
    });
    await expect(task).rejects.toBe(error);
    expect(await refusal).toMatchObject({ message: expect.stringContaining(ENDED) as string });
    expect(await transactions()).toEqual([]);
  });

  it('any release rolls back after a failed task of lock.run, unless its options say otherwise', async () => {
    const locks = await process();
    const error = new Error('of the task');
    const failing = async (release: (lock: Lock) => Promise<unknown>, isAsync = true) => {
      const lock = await locks.acquire('a');
      const change = () => entityManagerOf(lock).query(write);
      if (isAsync) {
        const changed = lock.run(async () => {
          await change();
          throw error;
        });
        await expect(changed).rejects.toBe(error);
      } else {
        await change();
        const task = () => {
          throw error;
        };
        expect(() => lock.run(task)).toThrow(error);
      }
      expect(await release(lock)).toBe('released');
      return (await transactions()).length;
    };
    expect(await failing((lock) => lock.release())).toBe(0);
    expect(await failing((lock) => lock.release(), false)).toBe(0);
    const disposed = async () => {
      await using lock = await locks.tryAcquire('a');
      await lock?.run(async () => {
        await entityManagerOf(lock).query(write);
        throw error;
      });
    };
    await expect(disposed()).rejects.toBe(error);
    expect(await transactions()).toEqual([]);
    expect(await failing((lock) => lock.release({ rollback: false }))).toBe(1);
    await rig.source.query('DELETE FROM written');
    const given = await locks.acquire('a');
    await given.run(() => entityManagerOf(given).query(write));
    expect(await given.release({ rollback: true })).toBe('released');
    expect(await transactions()).toEqual([]);
  });

  it('a nested task of lock.run that fails leaves the end of the transaction to the outermost task', async () => {
    const locks = await process();
    await locks.withLock('a', async (lock) => {
      await entityManagerOf(lock).query(write);
      const nested = await locks.acquire('a', { within: lock });
      await expect(nested.run(() => Promise.reject(new Error('of a part')))).rejects.toThrow('of a part');
      expect(await nested.release()).toBe('nested');
    });
    expect(await transactions()).toHaveLength(1);
  });

  it('a task that switches to another schema with a lock table leaves other locks in their own schema', async () => {
    const [one, two] = [await process(), await process()];
    await (await one.acquire('b')).release();
    const table = isPostgres ? 'public.distributed_lock' : `${String(rig.source.options.database)}.distributed_lock`;
    const copy = isPostgres ? '(LIKE public.distributed_lock INCLUDING ALL)' : `LIKE ${table}`;
    for (const sql of [
      `CREATE ${isPostgres ? 'SCHEMA' : 'DATABASE'} tenant`,
      `CREATE TABLE tenant.distributed_lock ${copy}`,
      `INSERT INTO tenant.distributed_lock SELECT * FROM ${table}`,
    ]) {
      await rig.source.query(sql);
    }
    await one.withLock('a', (lock) =>
      entityManagerOf(lock).query(isPostgres ? 'SET search_path TO tenant' : 'USE tenant'),
    );
    const held = await one.acquire('b');
    await expect(two.acquire('b', { wait: 0 })).rejects.toBeInstanceOf(LockBusyError);
    await held.release();
    await rig.source.query(isPostgres ? 'DROP SCHEMA tenant CASCADE' : 'DROP DATABASE tenant');
  });

  it("a repository stays in the lock's transaction, even if typeorm-transactional has its own", async () => {
    const app = await rig.backend.source({ entities: [Account] }).initialize();
    const locks = await rig.processes.start(sharingSubscribers(app));
    // Copies what initializeTransactionalContext() of typeorm-transactional 0.5 does.
    Object.defineProperty(Repository.prototype, 'manager', {
      configurable: true,
      get: () => app.manager,
      set: () => undefined,
    });
    try {
      const task = locks.withLock('a', async (lock) => {
        await entityManagerOf(lock).getRepository(Account).update({ id: 1 }, { balance: 7 });
        throw new Error('undone');
      });
      await expect(task).rejects.toThrow('undone');
    } finally {
      Reflect.deleteProperty(Repository.prototype, 'manager');
    }
    expect(await app.query('SELECT balance FROM account WHERE id = 1')).toEqual([{ balance: 0 }]);
    await app.destroy();
  });

  it('a branch of the task that keeps running writes nothing after maxHold passes', async () => {
    const locks = await process();
    let refusal: Promise<unknown> = Promise.resolve();
    const task = locks.withLock('a', (lock) => (refusal = writing(entityManagerOf(lock)).refusal), {
      maxHold: 1_000,
    });
    await expect(task).rejects.toBeInstanceOf(LockLostError);
    expect(await refusal).toMatchObject({ message: expect.stringContaining(ENDED) as string });
    expect(await transactions()).toEqual([]);
  });

  it('a branch that keeps running writes nothing after the COMMIT', async () => {
    const locks = await process();
    const lock = await locks.acquire('a');
    const manager = entityManagerOf(lock);
    const { first, refusal } = writing(manager);
    await first;
    expect(await lock.release()).toBe('released');
    expect(await refusal).toMatchObject({ message: expect.stringContaining(ENDED) as string });
    expect(await transactions()).toHaveLength(1);
    expect(await transactions()).not.toEqual([0]);
    // The connection has another holder now.
    await using other = await locks.acquire('b');
    await expect(manager.query(write)).rejects.toThrow('already released');
    await expect(manager.transaction((nested) => nested.query(write))).rejects.toThrow('already released');
    expect(other.isHeld()).toBe(true);
  });

  it("a statement delayed by an application's subscriber is refused after the COMMIT", async () => {
    const app = rig.backend.source();
    let letGo = () => {};
    const kept = new Promise<void>((resolve) => (letGo = resolve));
    const subscriber: EntitySubscriberInterface = {
      beforeQuery: ({ query }) => (query === write ? kept : undefined),
    };
    app.subscribers.push(subscriber);
    const locks = await rig.processes.start(sharingSubscribers(app));
    const lock = await locks.acquire('a');
    const refusal = errorOf(entityManagerOf(lock).query(write));
    expect(await lock.release()).toBe('released');
    letGo();
    expect(await refusal).toMatchObject({ message: expect.stringContaining(ENDED) as string });
    expect(await transactions()).toEqual([]);
  });

  it('a nested transaction in a branch that keeps running commits nothing of a failed task', async () => {
    const locks = await process();
    const error = new Error('of one branch');
    let nested: Promise<unknown> = Promise.resolve();
    const task = locks.withLock('a', async (lock) => {
      const manager = entityManagerOf(lock);
      await manager.query(write);
      await new Promise<void>((resolve) => {
        nested = manager
          .transaction(async (inner) => {
            await inner.query(write);
            resolve();
            await inner.query(write);
          })
          .catch((reason: unknown) => reason);
      });
      throw error;
    });
    await expect(task).rejects.toBe(error);
    expect(await nested).toBeInstanceOf(Error);
    expect(await transactions()).toEqual([]);
  });

  it('a subscriber that fails after the end replaces no task error, and makes no release uncertain', async () => {
    const app = rig.backend.source();
    const fail = () => Promise.reject(new Error('of the subscriber'));
    app.subscribers.push({ afterTransactionCommit: fail, afterTransactionRollback: fail });
    const locks = await rig.processes.start(sharingSubscribers(app));
    const error = new Error('of the task');
    // The first lock of a key adds a rollback of its own.
    const task = locks.withLock('watched by a subscriber', async (lock) => {
      await entityManagerOf(lock).query(write);
      throw error;
    });
    await expect(task).rejects.toBe(error);
    const unused = await locks.acquire('watched by a subscriber', { wait: 0 });
    expect(await unused.release()).toBe('released');
    expect(await transactions()).toEqual([]);
  });

  it('a ROLLBACK without a reply does not replace the task error', async () => {
    const provider = await rig.backend.provider({ sessionGuard: '30s', commandTimeout: '1s' });
    const locks = await rig.processes.start(provider);
    const error = new Error('of the task');
    const task = locks.withLock('a', async (lock) => {
      await entityManagerOf(lock).query(write);
      rig.backend.wireOf(provider)?.freeze();
      throw error;
    });
    await expect(task).rejects.toBe(error);
    rig.backend.wireOf(provider)?.thaw();
  });

  it('a COMMIT by the application loses the lock immediately', async () => {
    const [ann, bob] = [await process(), await process()];
    const lock = await ann.acquire('a');
    const manager = entityManagerOf(lock);
    await manager.query(write);
    await manager.queryRunner?.commitTransaction();
    await (await bob.acquire('a', { wait: 0 })).release();
    expect(lock.isHeld()).toBe(false);
    expect(await lock.release()).toBe('lost');
    expect(await transactions()).toHaveLength(1);
  });

  it('a COMMIT that waited for a statement that ended in a deadlock loses the lock', async () => {
    const locks = await process();
    const rival = rig.source.createQueryRunner();
    await rival.startTransaction();
    const update = (manager: EntityManager, id: number) =>
      manager.query(`UPDATE account SET balance = balance + 1 WHERE id = ${id}`);
    // The server rolls back the transaction that has written less.
    for (let count = 0; count < 50; count += 1) await rival.manager.query(write);
    await update(rival.manager, 2);
    const lock = await locks.acquire('a');
    const manager = entityManagerOf(lock);
    await update(manager, 1);
    if (isPostgres) {
      // Each waiting transaction checks for a deadlock once. The lock's must find it, even if the rival starts to wait
      // late.
      await manager.query(`SET LOCAL deadlock_timeout = '3s'`);
      await rival.query(`SET LOCAL deadlock_timeout = '60s'`);
    }
    const late = errorOf(update(manager, 2));
    await rig.backend.untilWaiting(1);
    const released = lock.release();
    const crossed = errorOf(update(rival.manager, 1));
    expect(await released).toBe('lost');
    expect(await late).toMatchObject(isPostgres ? { code: '40P01' } : { errno: 1213 });
    await crossed;
    await rival.rollbackTransaction();
    await rival.release();
  });

  it('a statement in flight when its session is destroyed settles, and so does withLock', async () => {
    const locks = await process({ sessionGuard: '2s', commandTimeout: '1s' });
    let refusal: unknown;
    const task = locks.withLock('a', async (lock) => {
      refusal = await errorOf(entityManagerOf(lock).query(longStatement));
    });
    await expect(task).rejects.toBeInstanceOf(LockLostError);
    expect(refusal).toMatchObject({ message: 'The session has ended.' });
  });

  if (isPostgres) {
    const failing = 'SELECT * FROM nowhere';

    it('a failed statement frees nothing, and a task that continues learns that nothing was saved', async () => {
      const [ann, bob] = [await process(), await process()];
      const task = ann.withLock('a', async (lock) => {
        const manager = entityManagerOf(lock);
        await manager.query(write);
        await errorOf(manager.query(failing));
        expect(await bob.tryAcquire('a')).toBeNull();
        await lock.extend();
        expect(lock.isHeld()).toBe(true);
      });
      await expect(task).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'rolled-back' });
      expect(await transactions()).toEqual([]);
      await (await bob.acquire('a', { wait: 0 })).release();
    });

    it('a task that fails with that statement rejects with its error, and not with a loss', async () => {
      const locks = await process();
      const task = locks.withLock('a', (lock) => entityManagerOf(lock).query(failing));
      await expect(task).rejects.toThrow('nowhere');
      await expect(task).rejects.not.toBeInstanceOf(LockLostError);
      // The connection is still usable.
      await locks.withLock('a', (lock) => entityManagerOf(lock).query(write), { wait: 0 });
    });

    it('a failure in a nested transaction undoes only that transaction, and the lock stays', async () => {
      const [ann, bob] = [await process(), await process()];
      await ann.withLock('a', async (lock) => {
        const manager = entityManagerOf(lock);
        await manager.query(write);
        const nested = manager.transaction((inner) => inner.query(failing));
        await expect(nested).rejects.toThrow('nowhere');
        expect(await bob.tryAcquire('a')).toBeNull();
        expect(lock.isHeld()).toBe(true);
      });
      expect(await transactions()).toHaveLength(1);
    });

    it('a COMMIT that the server answers with a ROLLBACK loses the lock', async () => {
      const app = rig.backend.source();
      const subscriber: EntitySubscriberInterface = {
        // Fails after everything else succeeded.
        beforeTransactionCommit: ({ queryRunner }) => errorOf(queryRunner.query('SELEC')) as Promise<undefined>,
      };
      app.subscribers.push(subscriber);
      const locks = await rig.processes.start(sharingSubscribers(app));
      const task = locks.withLock('a', (lock) => entityManagerOf(lock).query(write));
      await expect(task).rejects.toBeInstanceOf(LockLostError);
      expect(await transactions()).toEqual([]);
    });
  }
});
