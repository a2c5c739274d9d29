import mysql from 'mysql2/promise';
import { ensureServers } from '../../scripts/ensure-servers.mjs';
import { startMariaDb } from '../../test/servers/sql-server.mjs';
import { measureSql } from '../sql/cycles.mjs';

const READ_ONLY = ['read_only', 'innodb_read_only', 'tx_read_only']
  .map((name) => `CAST(@@global.${name} AS CHAR) NOT IN ('0', 'OFF')`)
  .join(' OR ');
const NOW = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`;

ensureServers(['mariadbd']);
await measureSql(await startMariaDb(), {
  name: 'MariaDB',
  driver: 'mysql2',
  async connect(url) {
    const connection = await mysql.createConnection(url);
    await connection.query(`SET SESSION tx_isolation = 'READ-COMMITTED'`);
    return connection;
  },
  async version(connection) {
    const [[{ version }]] = await connection.query('SELECT VERSION() AS version');
    return version.split('-')[0];
  },
  async statements(connection) {
    const [[row]] = await connection.query(`SHOW GLOBAL STATUS LIKE 'Questions'`);
    return Number(row.Value);
  },
  /** The first statement of a row lock starts its transaction. */
  prepare: (connection, provider) => connection.query(`SET SESSION autocommit = ${provider === 'row' ? 0 : 1}`),
  raw: {
    async row(connection, key) {
      await connection.query(
        `SELECT ${READ_ONLY} AS read_only FROM \`test\`.\`distributed_lock\` ` +
          'WHERE name = ? FOR UPDATE SKIP LOCKED',
        [`lock:${key}`],
      );
      return () => connection.query('ROLLBACK');
    },
    async advisory(connection, key) {
      await connection.query(`SELECT GET_LOCK(?, 0) AS done, ${READ_ONLY} AS read_only`, [`lock:${key}`]);
      return () =>
        connection.query(`SELECT COALESCE(RELEASE_LOCK(?), 0) AS done, ${READ_ONLY} AS read_only`, [`lock:${key}`]);
    },
    async version(connection, key) {
      const [name, holder, lease] = [`lock#lease:${key}`, 'raw', 10_000_000];
      const [[{ token }]] = await connection.query(
        `SELECT name, token, holder, holders, expires, ${NOW} AS server_time FROM \`test\`.\`distributed_lock\` WHERE name IN (?)`,
        [name],
      );
      await connection.query(
        `UPDATE \`test\`.\`distributed_lock\` SET token = LAST_INSERT_ID(GREATEST(token + 1, ${NOW}) + ?), holder = ?, holders = NULL, ` +
          `expires = ${NOW} + ? WHERE name = ? AND token = ? AND (expires <= ${NOW} OR holders = ?)`,
        [0, holder, lease, name, token, null],
      );
      return () =>
        connection.query(
          `UPDATE \`test\`.\`distributed_lock\` SET holder = NULL, expires = ${NOW} + ? ` +
            `WHERE name = ? AND holder = ? AND expires > ${NOW}`,
          [0, name, holder],
        );
    },
  },
  /** A row lock as it is usually written, with one more round trip. */
  async usual(connection, key) {
    await connection.query('START TRANSACTION');
    await connection.query('SELECT 1 FROM `distributed_lock` WHERE name = ? FOR UPDATE SKIP LOCKED', [`lock:${key}`]);
    return () => connection.query('COMMIT');
  },
});
