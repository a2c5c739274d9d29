import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import mysql from 'mysql2/promise';
import pg from 'pg';
import { startMemcached } from '../test/servers/memcached-server.mjs';
import { startRedisServer } from '../test/servers/redis-server.mjs';
import { startMariaDb, startPgBouncer, startPostgres } from '../test/servers/sql-server.mjs';
import { startZooKeeper } from '../test/servers/zookeeper-server.mjs';

/** What a mistake's code knows about its server, such as its URL. */
export type Places = Readonly<Record<string, unknown>>;

/** Starts a server, configured to provoke the mistakes. */
type Start = (stops: Stop[]) => Promise<Places>;
type Stop = () => Promise<unknown>;

/** The servers for the mistakes. Each is started once, for the first mistake that needs it. */
export class TestServers {
  readonly #places = new Map<string, Promise<Places>>();
  readonly #stops: Stop[] = [];

  readonly placesOf = (name: string): Promise<Places> => {
    const known = this.#places.get(name);
    if (known) return known;
    const start = SERVERS[name];
    if (!start) throw new Error(`There is no server "${name}". Use one of ${Object.keys(SERVERS).join(', ')}.`);
    const places = start(this.#stops);
    this.#places.set(name, places);
    return places;
  };

  /** Stops the servers in reverse order, because a pooler or a replica must stop before its server. */
  async stop(): Promise<void> {
    for (const stop of this.#stops.toReversed()) await stop();
  }
}

/** By the names that mistakes use. */
export const SERVERS: Readonly<Record<string, Start>> = {
  /** With accounts that lack permissions, and one whose password is `secret`. */
  async redis(stops) {
    const server = await startRedisServer();
    stops.push(() => server.stop());
    const admin = new Redis(server.url);
    const account = (name: string, ...rules: string[]) => admin.call('ACL', 'SETUSER', name, 'on', '>secret', ...rules);
    await account('shop', '~*', '&*', '+@all');
    await account('keyless', 'resetkeys', '&*', '+@all');
    await account('deaf', '~*', 'resetchannels', '+@all');
    await account('reader', '~*', '&*', '+@read', '+@connection');
    await admin.quit();
    return { host: '127.0.0.1', port: server.port, url: server.url };
  },
  async 'redis with a password'(stops) {
    const server = await startRedisServer({ args: ['--requirepass', 'secret'] });
    stops.push(() => server.stop());
    return { url: server.url, port: server.port };
  },
  async 'redis replica'(stops) {
    const master = await startRedisServer({ args: ['--repl-diskless-sync-delay', '0'] });
    stops.push(() => master.stop());
    const replica = await startRedisServer({ args: ['--replicaof', '127.0.0.1', String(master.port)] });
    stops.push(() => replica.stop());
    return { url: replica.url };
  },
  async 'redis node of a cluster'(stops) {
    const server = await startRedisServer({
      args: ['--cluster-enabled', 'yes', '--cluster-config-file', 'nodes.conf'],
    });
    stops.push(() => server.stop());
    return { url: server.url };
  },
  async postgres(stops) {
    const server = await startPostgres();
    stops.push(() => server.stop());
    const admin = new pg.Client(server.url);
    await admin.connect();
    await admin.query('CREATE ROLE guest LOGIN; CREATE ROLE reader LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC');
    await admin.query(
      'CREATE TABLE read_only_lock (name varchar(255) COLLATE "C" PRIMARY KEY, token bigint NOT NULL DEFAULT 0, ' +
        'holder varchar(32) NULL, expires bigint NOT NULL DEFAULT 0, label text NULL, holders text NULL)',
    );
    await admin.query('CREATE TABLE orders (name text); GRANT SELECT ON read_only_lock TO reader');
    await admin.end();
    const address = `127.0.0.1:${server.port}`;
    return { url: server.url, address, port: server.port };
  },
  async pgbouncer(stops) {
    const server = await startPostgres();
    stops.push(() => server.stop());
    const pooler = await startPgBouncer(server.port, 'transaction');
    stops.push(() => pooler.stop());
    return { url: pooler.url };
  },
  async mariadb(stops) {
    const server = await startMariaDb();
    stops.push(() => server.stop());
    const admin = await mysql.createConnection(server.url.replace('mariadb:', 'mysql:'));
    await admin.query(`CREATE USER shop@'%' IDENTIFIED BY 'secret'`);
    await admin.query(`CREATE USER guest@'%' IDENTIFIED BY 'secret'`);
    await admin.query(`GRANT ALL ON test.* TO shop@'%'`);
    await admin.query('CREATE DATABASE shop');
    await admin.end();
    return { address: `127.0.0.1:${server.port}`, url: server.url };
  },
  async zookeeper(stops) {
    const server = await startZooKeeper();
    stops.push(() => server.stop());
    return { connectString: server.connectString };
  },
  async memcached(stops) {
    const server = await startMemcached();
    stops.push(() => server.stop());
    const folder = await mkdtemp(join(tmpdir(), 'lock-memcached-'));
    stops.push(() => rm(folder, { recursive: true }));
    await writeFile(join(folder, 'accounts'), 'shop:secret\n');
    const locked = await startMemcached({ args: ['-Y', join(folder, 'accounts')] });
    stops.push(() => locked.stop());
    const redis = await startRedisServer();
    stops.push(() => redis.stop());
    return {
      lockedAddress: locked.address,
      address: server.address,
      url: `redis://${server.address}`,
      redisAddress: `127.0.0.1:${redis.port}`,
    };
  },
};
