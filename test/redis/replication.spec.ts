import { Redis } from 'ioredis';
import { LockUnavailableError } from '../../lib/api/errors.js';
import type { RecordStore } from '../../lib/api/lock-provider.js';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';
import {
  granted,
  RELEASE,
  request,
  type StartedBackend,
  startBackend,
  until,
  untilAnswered,
  untilWaiting,
} from './seam.js';

// One replica, whose replication can be cut, and an address that leads to whichever of the two is the master.
describe('replicas that fall behind', () => {
  let master: RedisServer;
  let replica: RedisServer;
  let replication: TcpProxy;
  let address: TcpProxy;
  let admin: Redis;
  let one: StartedBackend;
  let two: StartedBackend;

  beforeEach(async () => {
    master = await startRedisServer({ args: ['--repl-diskless-sync-delay', '0'] });
    replication = await startTcpProxy(master.port);
    address = await startTcpProxy(master.port);
    replica = await startRedisServer({ args: ['--replicaof', '127.0.0.1', String(replication.port)] });
    admin = new Redis({ port: replica.port });
    const source = new Redis({ port: master.port });
    await until(async () => (await source.info('replication')).includes('state=online'), 'it follows');
    // From its first acknowledgement on, it answers each at once.
    await source.set('first', '1');
    await until(async () => (await source.wait(1, 1_000)) === 1, 'it has acknowledged');
    source.disconnect();
  }, 60_000);
  afterEach(async () => {
    await one.backend.close();
    await two.backend.close();
    admin.disconnect();
    await Promise.all([replication.close(), address.close(), master.stop(), replica.stop()]);
  });

  /** WAIT takes at most half of the commandTimeout. So `one` waits for a slow replica, and `two` soon gives up on a frozen one. */
  const start = async (waitReplicas: number) => {
    const options = { url: `redis://127.0.0.1:${address.port}`, waitReplicas };
    one = await startBackend({ ...options, commandTimeout: '30s' });
    two = await startBackend({ ...options, commandTimeout: '1s' });
  };
  const failOver = async () => {
    await admin.call('REPLICAOF', ['NO', 'ONE']);
    address.leadTo(replica.port);
    // A busy machine may have made a connection anew before.
    for (const { events } of [one, two]) events.length = 0;
    address.cut();
  };
  const back = async ({ events }: StartedBackend) => {
    await until(() => events.some(({ type }) => type === 'recovered'), 'it is back');
  };

  it('without waitReplicas a promoted replica does not know the lock: the loss is told at once, the next token is larger', async () => {
    await start(0);
    replication.freeze();
    const held = granted(await one.backend.acquire(request('k')));
    await failOver();
    await Promise.all([back(one), back(two)]);
    // Two hold it here: what only a fencing token, or waitReplicas, protects from.
    const other = granted(await two.backend.acquire(request('k')));
    expect(other.fencingToken).toBeGreaterThan(held.fencingToken ?? 0n);
    expect(await one.backend.renew(held, 30_000)).toBe('lost');
  });

  it('with waitReplicas it refuses the lock, says why, and leaves nothing behind', async () => {
    await start(1);
    replication.freeze();
    const ask = request('k');
    const error: unknown = await two.backend.acquire(ask).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(LockUnavailableError);
    expect(String(error)).toMatch(/0 of 1 replicas/);
    expect(await two.backend.release(ask, RELEASE)).toBe('released');
    expect(await two.backend.inspect('k')).toBeNull();
    replication.thaw();
    await until(async () => (await one.backend.acquire(request('k')).catch(() => 'down')) !== 'down', 'it is held');
  });

  it('with waitReplicas a lock that is held is known to the promoted replica', async () => {
    await start(1);
    const held = granted(await one.backend.acquire(request('k')));
    replication.freeze();
    await failOver();
    await Promise.all([back(one), back(two)]);
    const info = await untilAnswered(() => two.backend.inspect('k'));
    expect(info).toMatchObject({ fencingToken: held.fencingToken, holders: 1 });
    expect(await untilAnswered(() => two.backend.release(held, RELEASE))).toBe('released');
  });

  it('with waitReplicas a renewal that no replica acknowledges is unknown, and renews nothing', async () => {
    await start(1);
    const held = granted(await one.backend.acquire(request('k')));
    replication.freeze();
    expect(await two.backend.renew(held, 60_000)).toBe('unknown');
    replication.thaw();
    await until(async () => (await one.backend.renew(held, 60_000)) !== 'unknown', 'it is renewed');
  });

  it('with waitReplicas a record that was written or read is known to the promoted replica', async () => {
    await start(1);
    expect((await one.backend.records.replace('job', null, 'a')).value).toBe('a');
    replication.freeze();
    await failOver();
    await Promise.all([back(one), back(two)]);
    expect((await admin.get(new KeyLayout('lock').recordOf('job'))) ?? 'nothing').toBe('a');
  });

  it('with waitReplicas a record that no replica acknowledges is neither written nor read, until one does', async () => {
    await start(1);
    expect((await one.backend.records.replace('job', null, 'a')).value).toBe('a');
    replication.freeze();
    const operations: ((records: RecordStore) => Promise<unknown>)[] = [
      (records) => records.replace('job', 'a', 'b'),
      // It is there by now, and could still be lost.
      (records) => records.replace('job', 'a', 'b'),
      (records) => records.replace('job', 'a', 'c'),
      (records) => records.read('job'),
    ];
    for (const operation of operations) {
      // Each on a connection that has written nothing else, which no replica would have acknowledged either.
      const { backend } = await startBackend({
        url: `redis://127.0.0.1:${address.port}`,
        waitReplicas: 1,
        commandTimeout: '1s',
      });
      await expect(operation(backend.records)).rejects.toThrow(
        /^Record "job" .*: too few replicas have acknowledged it \(0 of 1 replicas/,
      );
      await backend.close();
    }
    replication.thaw();
    expect((await untilAnswered(() => one.backend.records.replace('job', 'a', 'b'))).value).toBe('b');
    // WAIT is documented for writes of its own connection alone, so a read is a write, too.
    const key = new KeyLayout('lock').recordOf('job');
    const source = new Redis({ port: master.port });
    await source.pexpire(key, 60_000);
    await one.backend.records.read('job');
    expect(await source.pttl(key)).toBeGreaterThan(60_000);
    source.disconnect();
    expect((await one.backend.records.read('job')).value).toBe('b');
  });

  it('with waitReplicas a loss is told also when no replica answers', async () => {
    await start(1);
    const held = granted(await one.backend.acquire(request('k')));
    const lost = granted(await one.backend.acquire(request('lost')));
    replication.freeze();
    expect(await two.backend.forceRelease('lost')).toBe(true);
    const outcomes = await Promise.all([held, lost].map((grant) => two.backend.renew(grant, 60_000)));
    expect(outcomes).toEqual(['unknown', 'lost']);
    replication.thaw();
  });

  it('with waitReplicas a lock that was handed over is held by the receiver when replicas have it, and not before', async () => {
    await start(1);
    const held = granted(await one.backend.acquire(request('k')));
    const waiter = two.backend.acquire(request('k'));
    await untilWaiting(two);
    replication.freeze();
    // The releaser waits for no replica.
    expect(await one.backend.release(held, RELEASE)).toBe('released');
    await expect(waiter).rejects.toThrow(LockUnavailableError);
    replication.thaw();
  });

  it('with waitReplicas the time of WAIT is a part of the lease: a short one is refused soon', async () => {
    await start(1);
    replication.freeze();
    const begun = performance.now();
    await expect(one.backend.acquire(request('k', { lease: 4_000 }))).rejects.toThrow(LockUnavailableError);
    // A fourth of the lease. Half of the commandTimeout would be 15 s.
    expect(performance.now() - begun).toBeLessThan(10_000);
  });

  it('many locks share one WAIT', async () => {
    await start(1);
    const server = new Redis({ port: master.port });
    await server.config('RESETSTAT');
    const grants = await Promise.all(
      Array.from({ length: 200 }, (_, index) => one.backend.acquire(request(`k${index}`))),
    );
    expect(grants.map((grant) => granted(grant).key)).toHaveLength(200);
    const waits = Number(/cmdstat_wait:calls=(\d+)/.exec(await server.info('commandstats'))?.[1]);
    expect(waits).toBeLessThan(40);
    server.disconnect();
  });
});
