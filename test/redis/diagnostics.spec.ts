import { expect } from '@jest/globals';
import { Redis } from 'ioredis';
import { createClient } from 'redis';
import { diagnoseServers, type Usage } from '../../lib/providers/redis/redis-diagnostics.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import { freePort } from '../servers/server-process.mjs';
import { IOREDIS, NODE_REDIS } from './client-libraries.js';
import { backendOf, startBackend, until } from './seam.js';
import { LockConfigError } from '../../lib/api/errors.js';

const usage: Usage = { isCluster: false, waitReplicas: 0, key: 'lock:{0}', channel: 'lock:{0}', pattern: 'lock:*' };
const about = (info: string, changed: Partial<Usage> = {}) =>
  diagnoseServers([(command) => Promise.resolve(command === 'info' ? info : [])], { ...usage, ...changed });

describe('diagnostics of Redis', () => {
  it('warn about a server without persistence and with eviction', async () => {
    const server = await startRedisServer({ args: ['--maxmemory', '100mb', '--maxmemory-policy', 'allkeys-lru'] });
    const { backend } = await startBackend({ url: server.url });
    const diagnostics = await backend.diagnose();
    expect(diagnostics.map(({ severity }) => severity)).toEqual(['warning', 'warning']);
    expect(diagnostics[0]?.message).toContain('noeviction');
    expect(diagnostics[1]?.message).toContain('appendonly');
    await backend.close();
    await server.stop();
  });

  it('report nothing about a well-configured server', async () => {
    const server = await startRedisServer({ args: ['--appendonly', 'yes'] });
    const { backend } = await startBackend({ url: server.url });
    expect(await backend.diagnose()).toEqual([]);
    await backend.close();
    await server.stop();
  });

  it('a Cluster node configured as a single server fails to boot', async () => {
    // The default is the port + 10 000, which an outgoing connection may use.
    const busPort = String(await freePort());
    const server = await startRedisServer({
      args: ['--appendonly', 'yes', '--cluster-enabled', 'yes', '--cluster-port', busPort],
    });
    const backend = backendOf({ url: server.url });
    const error: unknown = await backend.connect().catch((cause: unknown) => cause);
    expect(error).toBeInstanceOf(LockConfigError);
    expect(String(error)).toMatch(/is a Cluster node.*Pass all nodes as "cluster"/);
    await backend.close();
    await server.stop();
  });

  it.each([IOREDIS, NODE_REDIS])('a single server configured as a Cluster fails to boot, with %s', async (library) => {
    const server = await startRedisServer();
    const backend = backendOf(library.cluster([{ host: '127.0.0.1', port: server.port }]));
    const error: unknown = await backend.connect().catch((cause: unknown) => cause);
    expect(error).toBeInstanceOf(LockConfigError);
    expect(String(error)).toMatch(/is not in cluster mode.*Pass its address as "url"/);
    await backend.close();
    await server.stop();
  });

  it.each([
    ['the URL', (url: string) => ({ url: `${url}/99` })],
    ['an ioredis client', (url: string) => ({ client: new Redis(url, { db: 99, lazyConnect: true }) })],
    ['a node-redis client', (url: string) => ({ client: createClient({ url, database: 99 }) })],
  ])('a database that the server does not have, from %s, fails to boot', async (_, options) => {
    const server = await startRedisServer({ args: ['--appendonly', 'yes'] });
    const backend = backendOf(options(server.url));
    const error: unknown = await backend.connect().catch((cause: unknown) => cause);
    expect(String(error)).toMatch(/no database 99|DB index is out of range/);
    await backend.close();
    await server.stop();
  });

  it('report replicas that no write waits for and too few replicas, but not a sufficient number', async () => {
    const args = ['--appendonly', 'yes'];
    const master = await startRedisServer({ args });
    const replica = await startRedisServer({ args: [...args, '--replicaof', '127.0.0.1', String(master.port)] });
    const admin = new Redis(master.url);
    await until(
      async () => (await admin.info('replication')).includes('connected_slaves:1'),
      'the replica is connected',
      10_000,
    );
    admin.disconnect();
    const found = async (url: string, waitReplicas: number) => {
      const { backend } = await startBackend({ url, waitReplicas });
      const diagnostics = await backend.diagnose();
      await backend.close();
      return diagnostics;
    };
    const finding = (severity: string, text: string) => [{ severity, message: expect.stringContaining(text) }];
    expect(await found(master.url, 0)).toEqual(finding('warning', 'Set waitReplicas'));
    expect(await found(master.url, 1)).toEqual([]);
    expect(await found(master.url, 2)).toEqual(finding('error', 'waitReplicas is 2, but only 1 replicas'));
    await Promise.all([master.stop(), replica.stop()]);
  });

  it('do not blame the ACL for a server that is down', async () => {
    const server = await startRedisServer();
    const { backend, events } = await startBackend({ url: server.url });
    await server.stop();
    await until(() => events.length > 0, 'the connection is lost');
    expect(await backend.diagnose()).toEqual([
      { severity: 'warning', message: expect.stringContaining('did not reply to INFO') },
    ]);
    await backend.close();
  });

  it('accept replicas that writes wait for, and a Cluster node configured as a Cluster', async () => {
    expect(await about('redis_version:7.2.1\r\nconnected_slaves:2', { waitReplicas: 1 })).toEqual([]);
    expect(await about('redis_version:7.2.1\r\ncluster_enabled:1', { isCluster: true })).toEqual([]);
  });

  it('call Valkey by its own name', async () => {
    const valkey = 'redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\naof_enabled:0';
    expect(await about(valkey)).toEqual([
      { severity: 'warning', message: expect.stringMatching(/^Valkey has AOF disabled/) },
    ]);
  });

  it('report a finding once if all servers of a Cluster share it', async () => {
    const call = (command: string) => Promise.resolve(command === 'info' ? 'role:slave' : []);
    expect(await diagnoseServers([call, call, call], { ...usage, isCluster: true })).toHaveLength(1);
  });

  describe('when the ACL allows less than is needed', () => {
    let server: RedisServer;
    let admin: Redis;

    beforeAll(async () => {
      server = await startRedisServer({ args: ['--appendonly', 'yes'] });
      admin = new Redis(server.url);
    });
    afterAll(async () => {
      admin.disconnect();
      await server.stop();
    });

    it.each([
      ['a command of the script', ['~lock:*', '&lock:*', '+@all', '-zadd'], 'error', '+zadd'],
      ['keys', ['~other:*', '&lock:*', '+@all'], 'error', 'Grant ~lock:*.'],
      ['channels', ['~lock:*', '&other:*', '+@all'], 'error', 'Grant &lock:*.'],
      ['keys and channels', ['~other:*', '&other:*', '+@all'], 'error', 'Grant ~lock:* &lock:*.'],
      ['keys and a command', ['~other:*', '&lock:*', '+@all', '-zadd'], 'error', 'Grant ~lock:* +zadd.'],
      ['scripts', ['~lock:*', '&lock:*', '+@all', '-eval'], 'error', 'EVAL'],
      ['CLIENT KILL', ['~lock:*', '&lock:*', '+@all', '-client|kill'], 'warning', '+client|kill'],
      ['INFO', ['~lock:*', '&lock:*', '+@all', '-info'], 'warning', 'were not checked'],
    ])('name the missing permission: %s', async (_, rules, severity, text) => {
      await admin.call('ACL', ['SETUSER', 'locks', 'reset', 'on', '>secret', 'resetchannels', ...rules]);
      const { backend } = await startBackend({ url: `redis://locks:secret@127.0.0.1:${server.port}` });
      const diagnostics = await backend.diagnose();
      expect(diagnostics).toContainEqual({ severity, message: expect.stringContaining(text) });
      await backend.close();
    });

    it('name WAIT if writes wait for replicas', async () => {
      await admin.call('ACL', ['SETUSER', 'locks', 'reset', 'on', '>secret', '~lock:*', '&lock:*', '+@all', '-wait']);
      const url = `redis://locks:secret@127.0.0.1:${server.port}`;
      const { backend } = await startBackend({ url, waitReplicas: 1 });
      const diagnostics = (await backend.diagnose()).map(({ message }) => message);
      expect(diagnostics).toEqual([
        expect.stringContaining('0 replicas are connected'),
        expect.stringContaining('+wait'),
      ]);
      await backend.close();
    });
  });
});
