import type { DataSource } from 'typeorm';
import { Account } from './accounts.js';
import { SqlBackend } from './sql-backend.js';

const CLIENTS = 8;

// What docs/transactions.md shows for a transaction that the application has: each keeps others out until its end.
describe.each(['mariadb', 'postgres'] as const)('in a transaction of the application on %s', (type) => {
  let backend: SqlBackend;
  let source: DataSource;

  beforeAll(async () => {
    backend = await SqlBackend.start(type);
    source = await backend.source({ entities: [Account], synchronize: true }).initialize();
    await source.query('CREATE TABLE named_lock (name VARCHAR(100) PRIMARY KEY)');
  }, 60_000);
  beforeEach(async () => {
    await source.query('DELETE FROM account');
    await source.query('INSERT INTO account (id, balance) VALUES (1, 100)');
  });
  afterAll(async () => {
    await source.destroy();
    await backend.stop();
  });

  const balance = async () => (await source.getRepository(Account).findOneByOrFail({ id: 1 })).balance;
  const times = (work: () => Promise<unknown>) => Promise.all(Array.from({ length: CLIENTS }, work));

  it('a row that exists is locked by pessimistic_write', async () => {
    await times(() =>
      source.transaction(async (transaction) => {
        const account = await transaction.findOneOrFail(Account, {
          where: { id: 1 },
          lock: { mode: 'pessimistic_write' },
        });
        account.balance -= 1;
        await transaction.save(Account, account);
      }),
    );
    expect(await balance()).toBe(100 - CLIENTS);
  });

  it('a key without a row is locked by its name', async () => {
    const key = 'report:2026-11';
    await times(async () => {
      if (type === 'mariadb') await source.query('INSERT IGNORE INTO named_lock (name) VALUES (?)', [key]);
      await source.transaction(async (transaction) => {
        if (type === 'mariadb') await transaction.query('SELECT name FROM named_lock WHERE name = ? FOR UPDATE', [key]);
        else await transaction.query('SELECT pg_advisory_xact_lock(hashtextextended($1, 0))', [key]);
        const { id, balance: before } = await source.getRepository(Account).findOneByOrFail({ id: 1 });
        // Written by another connection: nothing but the lock keeps others out.
        await source.getRepository(Account).save({ id, balance: before - 1 });
      });
    });
    expect(await balance()).toBe(100 - CLIENTS);
  });
});
