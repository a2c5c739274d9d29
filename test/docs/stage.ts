import { type DynamicModule, type INestApplication, type ModuleMetadata, type Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { TypeOrmModule } from '@nestjs/typeorm';
import pg from 'pg';
import { DistributedLockModule, type Lock, LockAdmin, LockService } from '../../lib/index.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { SqlRowLockProvider, SqlVersionLockProvider } from '../../lib/providers/sql/index.js';

const started: INestApplication[] = [];

/**
 * Boots an application with this module, or with these parts and an in-memory lock provider. It's closed after the
 * block.
 */
export async function start(what: Type | DynamicModule | ModuleMetadata): Promise<INestApplication> {
  const module = typeof what === 'function' || 'module' in what ? what : withLocks(what);
  const app = await NestFactory.create(module, { abortOnError: false });
  started.push(app);
  return app.init();
}

function withLocks({ imports = [], ...parts }: ModuleMetadata) {
  const locks = DistributedLockModule.forRoot({ provider: new MemoryLockProvider() });
  return { module: class BlockModule {}, imports: [...imports, locks], ...parts };
}

export async function closeAll(): Promise<void> {
  await Promise.all(started.splice(0).map((app) => app.close()));
}

/** An in-memory database with the tables of these entities. */
export function sqlite(...entities: Type[]) {
  return TypeOrmModule.forRoot({ type: 'sqljs', entities, synchronize: true });
}

/**
 * Returns the balance of an account of 12 on this Postgres server after withdrawing 5 under a row lock, and 1 more in a
 * task that then fails.
 */
export async function balanceAfter(
  url: string,
  withdraw: (lock: Lock, id: number, amount: number) => Promise<void>,
): Promise<number> {
  const admin = new pg.Client(url);
  await admin.connect();
  await admin.query('CREATE TABLE IF NOT EXISTS account (id int PRIMARY KEY, balance int NOT NULL)');
  await admin.query('INSERT INTO account VALUES (1, 12) ON CONFLICT (id) DO UPDATE SET balance = 12');
  const provider = new SqlRowLockProvider({ url, synchronize: true });
  const app = await start({ module: class Bank {}, imports: [DistributedLockModule.forRoot({ provider })] });
  const locks = app.get(LockService);
  await locks.withLock('account:1', (lock) => withdraw(lock, 1, 5));
  const failed = locks.withLock('account:1', async (lock) => {
    await withdraw(lock, 1, 1);
    throw new Error('The task failed.');
  });
  await failed.catch(() => undefined);
  const { rows } = await admin.query<{ balance: number }>('SELECT balance FROM account');
  await admin.end();
  return rows[0]!.balance;
}

/**
 * Returns whether a deposit of 3 succeeds after its holder lost the lock, and the balance of an account of 12 after the
 * next holder deposited 5.
 */
export async function lateDeposit(
  url: string,
  deposit: (lock: Lock, id: number, amount: number) => Promise<boolean>,
): Promise<{ late: boolean; balance: number }> {
  const admin = new pg.Client(url);
  await admin.connect();
  await admin.query('DROP TABLE IF EXISTS account');
  await admin.query('CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL, fence bigint NULL)');
  await admin.query('INSERT INTO account VALUES (1, 12)');
  const provider = new SqlVersionLockProvider({ url, synchronize: true });
  const app = await start({ module: class Bank {}, imports: [DistributedLockModule.forRoot({ provider })] });
  const locks = app.get(LockService);
  const lost = await locks.acquire('account:1');
  await app.get(LockAdmin).forceRelease('account:1');
  if (!(await locks.withLock('account:1', (lock) => deposit(lock, 1, 5))))
    throw new Error("The next holder's deposit was rejected.");
  const late = await deposit(lost, 1, 3);
  const { rows } = await admin.query<{ balance: number }>('SELECT balance FROM account');
  await admin.query('DROP TABLE account');
  await admin.end();
  return { late, balance: rows[0]!.balance };
}

/** Responds to requests to example hosts, which don't exist. */
export const stub = {
  requests: [] as string[],
  fetch: globalThis.fetch,
  install(): void {
    globalThis.fetch = (input, init) => {
      const url = new URL(input instanceof Request ? input.url : input);
      if (!url.hostname.endsWith('.example')) return this.fetch(input, init);
      this.requests.push(`${init?.method ?? 'GET'} ${url.href}`);
      return Promise.resolve(new Response());
    };
  },
  remove(): void {
    globalThis.fetch = this.fetch;
    this.requests.length = 0;
  },
};
