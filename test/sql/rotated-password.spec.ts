import { readFile, writeFile } from 'node:fs/promises';
import { createConnection } from 'mysql2/promise';
import pg from 'pg';
import { LockManager } from '../../lib/core/lock-manager.js';
import { SqlVersionLockProvider } from '../../lib/providers/sql/index.js';
import { startMariaDb, startPostgres } from '../servers/sql-server.mjs';

const OLD = { user: 'app', password: 'token-1' };
const NEW = 'token-2';

describe('a password that is rotated', () => {
  const lockAfter = async (provider: SqlVersionLockProvider, rotate: () => Promise<void>): Promise<string> => {
    const locks = new LockManager({ providers: { sql: provider } });
    await locks.start();
    try {
      await locks.withLock('k', () => undefined);
      await rotate();
      return await locks.withLock('k', () => 'done');
    } finally {
      await locks.stop();
    }
  };

  it('is asked of the function that gives it at each connection to Postgres', async () => {
    const server = await startPostgres();
    const admin = new pg.Client(server.url);
    try {
      await admin.connect();
      await admin.query(`CREATE USER app PASSWORD '${OLD.password}'; GRANT ALL ON SCHEMA public TO app`);
      // The server of the tests trusts everybody, and asks nobody for a password.
      const { rows } = await admin.query<{ hba_file: string }>('SHOW hba_file');
      const rules = rows[0]?.hba_file ?? '';
      await writeFile(rules, `host all app 127.0.0.1/32 scram-sha-256\n${await readFile(rules, 'utf8')}`);
      await admin.query('SELECT pg_reload_conf()');
      let token = OLD.password;
      let asked = 0;
      const password = () => {
        asked += 1;
        return Promise.resolve(token);
      };
      const { hostname: host, port, pathname } = new URL(server.url);
      const postgres = { host, port: Number(port), database: pathname.slice(1), user: OLD.user, password };
      const outcome = await lockAfter(new SqlVersionLockProvider({ postgres, synchronize: true }), async () => {
        await admin.query(`ALTER USER app PASSWORD '${NEW}'`);
        token = NEW;
        asked = 0;
        await admin.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'`);
      });
      expect(outcome).toBe('done');
      expect(asked).toBeGreaterThan(0);
    } finally {
      await admin.end();
      await server.stop();
    }
  }, 60_000);

  it('is read from the configuration of mysql2 at each connection', async () => {
    const server = await startMariaDb();
    const admin = await createConnection(server.url);
    try {
      await admin.query(`CREATE USER app IDENTIFIED BY '${OLD.password}'`);
      await admin.query('GRANT ALL ON test.* TO app');
      const { hostname: host, port } = new URL(server.url);
      const mysql = { host, port: Number(port), database: 'test', ...OLD };
      const outcome = await lockAfter(new SqlVersionLockProvider({ mysql, synchronize: true }), async () => {
        await admin.query(`ALTER USER app IDENTIFIED BY '${NEW}'`);
        mysql.password = NEW;
        await admin.query('KILL USER app');
      });
      expect(outcome).toBe('done');
    } finally {
      await admin.end();
      await server.stop();
    }
  }, 60_000);
});
