import pg from 'pg';
import { ensureServers } from '../../scripts/ensure-servers.mjs';
import { startPostgres } from '../../test/servers/sql-server.mjs';
import { measureSql } from '../sql/cycles.mjs';

const READ_ONLY = `pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on'`;
const NOW = '(extract(epoch FROM statement_timestamp()) * 1000000)::bigint';
const TABLE = '"public"."distributed_lock"';

/** A statement that the server parses once for each connection, like ours. */
const named = (client, name, text, values) => client.query({ name, text, values });

ensureServers(['postgres']);
await measureSql(await startPostgres(), {
  name: 'Postgres',
  driver: 'pg',
  async connect(url) {
    const client = new pg.Client(url);
    await client.connect();
    return client;
  },
  async version(client) {
    const { rows } = await client.query('SHOW server_version');
    return rows[0].server_version.split(' ')[0];
  },
  raw: {
    async row(client, key) {
      await client.query(
        `BEGIN; SELECT ${READ_ONLY} AS read_only FROM ${TABLE} WHERE name = 'lock:${key}' FOR UPDATE SKIP LOCKED`,
      );
      return () => client.query('ROLLBACK');
    },
    async advisory(client, key) {
      const number = [String([...key].reduce((sum, character) => sum * 31n + BigInt(character.charCodeAt(0)), 7n))];
      await named(client, 'try', `SELECT pg_try_advisory_lock($1::bigint) AS done, ${READ_ONLY} AS read_only`, number);
      return () =>
        named(client, 'unlock', `SELECT pg_advisory_unlock($1::bigint) AS done, ${READ_ONLY} AS read_only`, number);
    },
    async version(client, key) {
      const [name, holder, lease] = [`lock#lease:${key}`, 'raw', 10_000_000];
      const { rows } = await named(
        client,
        'look',
        `SELECT name, token, holder, holders, expires, ${NOW} AS server_time FROM ${TABLE} WHERE name = ANY($1)`,
        [[name]],
      );
      await named(
        client,
        'claim',
        `UPDATE ${TABLE} SET token = GREATEST(token + 1, ${NOW}) + $1, holder = $2, holders = NULL, expires = ${NOW} + $3 ` +
          `WHERE name = $4 AND token = $5 AND (expires <= ${NOW} OR holders = $6) RETURNING token`,
        [0, holder, lease, name, rows[0].token, null],
      );
      return () =>
        named(
          client,
          'release',
          `UPDATE ${TABLE} SET holder = NULL, expires = ${NOW} + $1 WHERE name = $2 AND holder = $3 AND expires > ${NOW}`,
          [0, name, holder],
        );
    },
  },
  /** A row lock as it is usually written, with one more round trip. */
  async usual(client, key) {
    await client.query('START TRANSACTION');
    await client.query(`SELECT 1 FROM ${TABLE} WHERE name = $1 FOR UPDATE SKIP LOCKED`, [`lock:${key}`]);
    return () => client.query('COMMIT');
  },
});
