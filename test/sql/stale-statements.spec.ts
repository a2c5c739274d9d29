import { jest } from '@jest/globals';
import pg from 'pg';
import type { LockProvider } from '../../lib/api/lock-provider.js';
import type { LockManager } from '../../lib/core/lock-manager.js';
import { SqlAdvisoryLockProvider, SqlRowLockProvider, SqlVersionLockProvider } from '../../lib/providers/sql/index.js';
import { createTableSql } from '../../lib/providers/sql/table/lock-schema.js';
import { type SqlServer, startPostgres } from '../servers/sql-server.mjs';
import { LockProcesses } from '../typeorm/sql-backend.js';

/** With the driver's own record of the statements that its server knows. */
type Client = pg.Client & { readonly connection: { parsedStatements: Record<string, string> } };

describe('a prepared statement of Postgres that does not fit any more', () => {
  const processes = new LockProcesses();
  const clients: Client[] = [];
  let server: SqlServer;
  let admin: pg.Client;

  beforeAll(async () => {
    server = await startPostgres();
    admin = new pg.Client(server.url);
    await admin.connect();
    const { connect } = pg.Client.prototype;
    const connectAndKeep = function (this: Client): unknown {
      clients.push(this);
      return Reflect.apply(connect, this, []);
    };
    jest.spyOn(pg.Client.prototype, 'connect').mockImplementation(connectAndKeep);
  }, 60_000);
  // The purge of a start opens a session that may end at any moment, so another process is to be at it.
  beforeEach(async () => {
    await admin.query(createTableSql('postgres', 'distributed_lock'));
    await admin.query(
      `INSERT INTO distributed_lock (name, holder, expires) VALUES ('test#purge', 'another', 9000000000000000)`,
    );
  });
  afterEach(async () => {
    clients.length = 0;
    await admin.query('DROP TABLE IF EXISTS distributed_lock');
  });
  afterAll(async () => {
    jest.restoreAllMocks();
    await admin.end();
    await server.stop();
  });

  const options = () => ({ url: server.url, synchronize: true, fencing: true, commandTimeout: '10s' });
  const kinds: readonly [kind: string, provider: () => LockProvider][] = [
    ['version', () => new SqlVersionLockProvider(options())],
    ['row', () => new SqlRowLockProvider(options())],
    ['advisory', () => new SqlAdvisoryLockProvider(options())],
  ];

  /** No attempt waits, and each is granted. Resolves to the failures that were repeated. */
  async function useAll(locks: LockManager): Promise<unknown[]> {
    const failures: unknown[] = [];
    const note = (event: unknown) => failures.push(event);
    locks.events.on('unavailable', note);
    for (let round = 0; round < 3; round += 1) {
      await Promise.all(
        ['a', 'b', 'c', 'd', 'e'].map(async (key) => {
          const lock = await locks.acquire(key, { wait: 0 });
          expect(lock.fencingToken).toBeGreaterThan(0n);
          expect(await lock.release()).toBe('released');
        }),
      );
    }
    locks.events.off('unavailable', note);
    return failures;
  }

  const CHANGES: readonly [change: string, make: () => Promise<unknown>][] = [
    ['columns get other types', () => admin.query(ALTER)],
    ['a column is added', () => admin.query('ALTER TABLE distributed_lock ADD COLUMN note text')],
    ['the table is made again', () => admin.query('ALTER TABLE distributed_lock RENAME TO old; ' + COPY)],
    ['the server forgets all', () => onAll((client) => client.query('DEALLOCATE ALL'))],
    ['others have its name', () => onAll((client) => (client.connection.parsedStatements = {}))],
  ];
  const ALTER =
    'ALTER TABLE distributed_lock ALTER COLUMN holder TYPE varchar(64), ALTER COLUMN token TYPE numeric, ' +
    'ALTER COLUMN name TYPE varchar(300) COLLATE "C", ALTER COLUMN holders TYPE varchar';
  const COPY =
    'CREATE TABLE distributed_lock (LIKE old INCLUDING ALL); INSERT INTO distributed_lock SELECT * FROM old; DROP TABLE old';
  const onAll = (work: (client: Client) => unknown) => Promise.all(clients.map(work));

  describe.each(CHANGES)('because %s', (change, make) => {
    it.each(kinds)('fails no %s lock', async (kind, provider) => {
      const locks = await processes.start(provider());
      await useAll(locks);
      // A session whose statements are gone may have lost its locks, and ends.
      const isReset = change === 'the server forgets all' && kind !== 'version';
      // A row lock that is held keeps the table as it is.
      const mayHold = kind !== 'row' && !isReset;
      const held = mayHold ? await locks.acquire('held') : undefined;
      await make();
      await held?.extend();
      const failures = await useAll(locks);
      if (!isReset) expect(failures).toEqual([]);
      expect(await held?.release()).toBe(mayHold ? 'released' : undefined);
    });
  });

  it('and whose session was reset, ends that session: its advisory locks are gone', async () => {
    const [locks, others] = [await processes.start(kinds[2]![1]()), await processes.start(kinds[2]![1]())];
    const held = await locks.acquire('held');
    await onAll((client) => client.query('DISCARD ALL'));
    await (await others.acquire('held')).release();
    await (await locks.acquire('b')).release();
    expect(held.isHeld()).toBe(false);
    expect(await held.release()).toBe('lost');
  });
});
