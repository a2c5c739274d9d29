import type { DataSource } from 'typeorm';
import { until } from '../until.js';

// Plain JavaScript without types, as the programs are.
const SQL_PAIR: string = '../../chaos/subjects/sql-pair.mjs';
const SQL_SERVER: string = '../../chaos/subjects/sql-server.mjs';

interface SqlPair {
  readonly port: number;
  withConnection<T>(task: (admin: DataSource) => Promise<T>): Promise<T>;
  makeReadOnly(): Promise<void>;
  promote(): Promise<void>;
  cutOffReplica(): void;
  killWriter(): Promise<void>;
  replaceOld(): Promise<void>;
  stop(): Promise<void>;
}

describe.each(['mariadb', 'postgres'] as const)('a writer with a replica: %s', (type) => {
  let pair: SqlPair;
  const sources: DataSource[] = [];

  beforeAll(async () => {
    const { startSqlPair } = (await import(SQL_PAIR)) as { startSqlPair(type: string): Promise<SqlPair> };
    pair = await startSqlPair(type);
    await pair.withConnection((admin) => admin.query('CREATE TABLE written (id int)'));
  }, 60_000);
  afterAll(async () => {
    await Promise.all(sources.filter((source) => source.isInitialized).map((source) => source.destroy()));
    await pair.stop();
  });

  /** A connection of the account of the locks. */
  async function connect(): Promise<DataSource> {
    const { dataSource, LIMITED_ACCOUNT } = (await import(SQL_SERVER)) as {
      dataSource(type: string, port: number, account: object): DataSource;
      LIMITED_ACCOUNT: object;
    };
    const source = await dataSource(type, pair.port, type === 'mariadb' ? LIMITED_ACCOUNT : {}).initialize();
    source.setOptions({ ...(type === 'postgres' && { poolErrorHandler: () => undefined }) });
    sources.push(source);
    return source;
  }
  const write = (source: DataSource, id: number) => source.query(`INSERT INTO written VALUES (${id})`);
  const written = async () => {
    const rows = await pair.withConnection<{ id: number }[]>((admin) =>
      admin.query('SELECT id FROM written ORDER BY id'),
    );
    return rows.map(({ id }) => id);
  };

  it.each([1, 2, 3])(
    'loses no row in a switchover, and the old writer keeps its connections: switchover %i',
    async (round) => {
      const client = await connect();
      await write(client, round);
      const old = pair.port;
      await pair.makeReadOnly();
      await expect(write(client, 99)).rejects.toThrow(/read.only/);
      await pair.promote();
      expect(pair.port).not.toBe(old);
      await expect(client.query('SELECT 1')).resolves.toHaveLength(1);
      await expect(write(client, 99)).rejects.toThrow(/read.only/);
      expect(await written()).toEqual([1, 2, 3].slice(0, round));
      await pair.replaceOld();
      await write(await connect(), 10 * round);
      await pair.withConnection((admin) => admin.query('DELETE FROM written WHERE id >= 10'));
    },
    60_000,
  );

  if (type === 'mariadb') return;

  it('acknowledges no commit while the standby is cut off, and the standby does not have it', async () => {
    pair.cutOffReplica();
    const client = await connect();
    let isAcknowledged = false;
    const writing = write(client, 4).then(
      () => {
        isAcknowledged = true;
      },
      () => undefined,
    );
    const waits = `SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'`;
    await until(
      () => pair.withConnection(async (admin) => (await admin.query<object[]>(waits)).length > 0),
      'the COMMIT waits for the standby',
    );
    expect(isAcknowledged).toBe(false);
    await pair.killWriter();
    await writing;
    expect(isAcknowledged).toBe(false);
    await pair.promote();
    expect(await written()).toEqual([1, 2, 3]);
    await pair.replaceOld();
  }, 60_000);
});
