import { Redis } from 'ioredis';
import { expect } from '@jest/globals';
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
  startWithFakeClock,
  until,
  untilAnswered,
  untilWaiting,
  ask,
  backendOf,
  waitersAre,
} from './seam.js';
import { isDemotion } from '../../lib/providers/redis/client/refusals.js';
import { IOREDIS, NODE_REDIS } from './client-libraries.js';
import type { TestEvent, TestGrant } from '../direct-backend.js';
import type { RedisLockProviderOptions } from '../../lib/providers/redis/index.js';

// One replica whose replication can be cut, and an address that leads to whichever server is the master.
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
    await until(async () => (await source.info('replication')).includes('state=online'), 'the replica is connected');
    // After its first acknowledgement, the replica sends each one immediately.
    await source.set('first', '1');
    await until(async () => (await source.wait(1, 1_000)) === 1, 'the replica has acknowledged');
    source.disconnect();
  }, 60_000);
  afterEach(async () => {
    await one.backend.close();
    await two.backend.close();
    admin.disconnect();
    await Promise.all([replication.close(), address.close(), master.stop(), replica.stop()]);
  });

  /**
   * WAIT takes at most half of commandTimeout, so `one` waits for a slow replica, and `two` soon gives up on a frozen
   * one.
   */
  const start = async (waitReplicas: number) => {
    const options = { url: `redis://127.0.0.1:${address.port}`, waitReplicas };
    one = await startBackend({ ...options, commandTimeout: '30s' });
    two = await startBackend({ ...options, commandTimeout: '1s' });
  };
  const failOver = async () => {
    await admin.call('REPLICAOF', ['NO', 'ONE']);
    address.leadTo(replica.port);
    // A busy machine may have reconnected earlier.
    for (const { events } of [one, two]) events.length = 0;
    address.cut();
  };
  const back = async ({ events }: StartedBackend) => {
    await until(() => events.some(({ type }) => type === 'recovered'), 'the connection is back');
  };

  it('without waitReplicas, a promoted replica misses the lock: the loss is reported immediately, and the next token is larger', async () => {
    await start(0);
    replication.freeze();
    const held = granted(await one.backend.acquire(request('k')));
    await failOver();
    await Promise.all([back(one), back(two)]);
    // Two processes hold the lock here. Only a fencing token, or waitReplicas, protects from that.
    const other = granted(await two.backend.acquire(request('k')));
    expect(other.fencingToken).toBeGreaterThan(held.fencingToken ?? 0n);
    expect(await one.backend.renew(held, 30_000)).toBe('lost');
  });

  it('with waitReplicas, an unreplicated lock is refused with the reason, and leaves nothing behind', async () => {
    await start(1);
    replication.freeze();
    const ask = request('k');
    const error: unknown = await two.backend.acquire(ask).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(LockUnavailableError);
    expect(String(error)).toMatch(/0 of 1 replicas/);
    expect(await two.backend.release(ask, RELEASE)).toBe('released');
    expect(await two.backend.inspect('k')).toBeNull();
    replication.thaw();
    await until(
      async () => (await one.backend.acquire(request('k')).catch(() => 'down')) !== 'down',
      'the lock is granted',
    );
  });

  it('with waitReplicas, a promoted replica has every granted lock', async () => {
    await start(1);
    const held = granted(await one.backend.acquire(request('k')));
    replication.freeze();
    await failOver();
    await Promise.all([back(one), back(two)]);
    const info = await untilAnswered(() => two.backend.inspect('k'));
    expect(info).toMatchObject({ fencingToken: held.fencingToken, holders: 1 });
    expect(await untilAnswered(() => two.backend.release(held, RELEASE))).toBe('released');
  });

  it('with waitReplicas, an unacknowledged renewal is unknown, and renews nothing', async () => {
    await start(1);
    const held = granted(await one.backend.acquire(request('k')));
    replication.freeze();
    expect(await two.backend.renew(held, 60_000)).toBe('unknown');
    replication.thaw();
    await until(async () => (await one.backend.renew(held, 60_000)) !== 'unknown', 'the lock is renewed');
  });

  it('with waitReplicas, a promoted replica has every record that was written or read', async () => {
    await start(1);
    expect((await one.backend.records.replace('job', null, 'a')).value).toBe('a');
    replication.freeze();
    await failOver();
    await Promise.all([back(one), back(two)]);
    expect((await admin.get(new KeyLayout('lock').recordOf('job'))) ?? 'nothing').toBe('a');
  });

  it('with waitReplicas, an unacknowledged record is neither written nor read until a replica acknowledges it', async () => {
    await start(1);
    expect((await one.backend.records.replace('job', null, 'a')).value).toBe('a');
    replication.freeze();
    const operations: ((records: RecordStore) => Promise<unknown>)[] = [
      (records) => records.replace('job', 'a', 'b'),
      // The record has been written by now, and could still be lost.
      (records) => records.replace('job', 'a', 'b'),
      (records) => records.replace('job', 'a', 'c'),
      (records) => records.read('job'),
    ];
    for (const operation of operations) {
      // Each on its own connection, without another unacknowledged write.
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
    // WAIT is documented only for writes of its own connection, so a read also writes.
    const key = new KeyLayout('lock').recordOf('job');
    const source = new Redis({ port: master.port });
    await source.pexpire(key, 60_000);
    await one.backend.records.read('job');
    expect(await source.pttl(key)).toBeGreaterThan(60_000);
    source.disconnect();
    expect((await one.backend.records.read('job')).value).toBe('b');
  });

  it('with waitReplicas, a loss is reported even if no replica responds', async () => {
    await start(1);
    const held = granted(await one.backend.acquire(request('k')));
    const lost = granted(await one.backend.acquire(request('lost')));
    replication.freeze();
    expect(await two.backend.forceRelease('lost')).toBe(true);
    const outcomes = await Promise.all([held, lost].map((grant) => two.backend.renew(grant, 60_000)));
    expect(outcomes).toEqual(['unknown', 'lost']);
    replication.thaw();
  });

  it('with waitReplicas, a lock that was handed off is granted only when replicas have it', async () => {
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

  it('with waitReplicas, WAIT is part of the lease: a request with a short lease is refused soon', async () => {
    await start(1);
    replication.freeze();
    const begun = performance.now();
    await expect(one.backend.acquire(request('k', { lease: 4_000 }))).rejects.toThrow(LockUnavailableError);
    // A quarter of the lease. Half of commandTimeout would be 15 s.
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

const SEEN = `${new KeyLayout('lock').counter}seen`;

// A master, its replica, and an address that leads new connections, but not open ones, to whichever server is the
// master.
describe.each([IOREDIS, NODE_REDIS])(
  'a failover that leaves the connections to the old master open, with %s',
  (library) => {
    let old: RedisServer;
    let next: RedisServer;
    let address: TcpProxy;
    let oldAdmin: Redis;
    let nextAdmin: Redis;
    const backends: StartedBackend[] = [];

    beforeEach(async () => {
      old = await startRedisServer({ args: ['--repl-diskless-sync-delay', '0'] });
      next = await startRedisServer({ args: ['--replicaof', '127.0.0.1', String(old.port)] });
      address = await startTcpProxy(old.port);
      oldAdmin = new Redis(old.url);
      nextAdmin = new Redis(next.url);
      await until(
        async () => (await oldAdmin.info('replication')).includes('state=online'),
        'the replica is connected',
      );
    }, 60_000);
    afterEach(async () => {
      old.signal('SIGCONT');
      await Promise.all(backends.splice(0).map(({ backend }) => backend.close()));
      oldAdmin.disconnect();
      nextAdmin.disconnect();
      await Promise.all([address.close(), old.stop(), next.stop()]);
    });

    const start = async (commandTimeout: number): Promise<StartedBackend> => {
      const started = await startBackend({ ...library.server(`redis://127.0.0.1:${address.port}`), commandTimeout });
      backends.push(started);
      return started;
    };
    const backendFor = (options: RedisLockProviderOptions): StartedBackend => {
      const events: TestEvent[] = [];
      const backend = backendOf(options, {}, events);
      backends.push({ backend, events });
      return { backend, events };
    };
    const promote = async () => {
      await nextAdmin.call('REPLICAOF', ['NO', 'ONE']);
      address.leadTo(next.port);
    };
    const replicated = async () => {
      await oldAdmin.set('last', '1');
      await until(async () => (await nextAdmin.get('last')) !== null, 'the replica has everything');
    };

    it.each([
      ['READONLY', 'yes'],
      ['MASTERDOWN', 'no'],
    ])('a renewal answered with %s finds the new master', async (_, stale) => {
      const { backend } = await start(2_000);
      const grant = granted(await backend.acquire(request('k')));
      await replicated();
      await promote();
      await oldAdmin.config('SET', 'replica-serve-stale-data', stale);
      // The server's new master does not exist, so the link stays down.
      await oldAdmin.call('REPLICAOF', ['127.0.0.1', '1']);
      const renewed = await untilAnswered(() => backend.renew(grant, 30_000));
      expect(renewed).toMatchObject({ validUntil: expect.any(Number) });
      expect(await nextAdmin.get('lock:{10}:k')).toContain(grant.holder);
    });

    it('a grant that a hung master sends on waking up is ignored by a process that has moved its commands to the new master', async () => {
      const holder = await start(1_000);
      // The last to notice that the master hangs.
      const slow = await start(8_000);
      const other = await start(1_000);
      const held = granted(await holder.backend.acquire(request('k')));
      let stale: TestGrant | 'busy' | undefined;
      void ask(slow.backend, request('k')).then((answer) => (stale = answer));
      await untilWaiting(slow);
      const waiter = ask(other.backend, request('k'));
      await untilWaiting(other);
      // Keeps every waiter live for a minute: the old master hangs for longer than the 3 s that it allows.
      for (const process of await oldAdmin.zrange(SEEN, '0', '-1')) await oldAdmin.zincrby(SEEN, 60_000, process);
      await replicated();
      old.signal('SIGSTOP');
      await promote();
      // The first release stays unread at the old master, and would hand off to the first waiter there.
      expect(await untilAnswered(() => holder.backend.release(held, RELEASE))).toBe('released');
      const grant = granted(await waiter);
      // A provisional lease would end before the slow process arrives.
      expect(await other.backend.renew(grant, 600_000)).toMatchObject({});
      await until(
        () => slow.events.some(({ type }) => type === 'recovered'),
        'the slow process is connected to the new master',
      );
      await waitersAre(other.backend, 'k', 1);
      old.signal('SIGCONT');
      await until(
        async () => (await oldAdmin.get('lock:{10}:k'))?.includes(held.holder) !== true,
        'the old master has read the release',
      );
      // By then, anything that it sent has arrived.
      await new Promise((resolve) => setTimeout(resolve, 100));
      expect(stale).toBeUndefined();
      expect(await other.backend.release(grant, RELEASE)).toBe('released');
      await until(() => stale !== undefined, 'the slow process is served');
      expect(granted(stale as TestGrant).fencingToken).toBeGreaterThan(grant.fencingToken ?? 0n);
    }, 120_000);

    it('a subscription that first reached a replica moves to the master', async () => {
      address.leadTo(next.port);
      const { backend } = backendFor(library.server(`redis://127.0.0.1:${address.port}`));
      await expect(backend.connect()).rejects.toThrow();
      const channels = (admin: Redis) => admin.pubsub('CHANNELS') as Promise<string[]>;
      await until(async () => (await channels(nextAdmin)).length === 1, 'the process is subscribed at the replica');
      address.leadTo(old.port);
      await until(async () => (await channels(oldAdmin)).length === 1, 'the process is subscribed at the master');
    });

    it('a grant that no process receives at the new master is not delivered by the old one, which now replicates from it', async () => {
      const holder = await start(2_000);
      // Its clock stands still, so it does not notice that it is connected to a replica.
      const idle = await startWithFakeClock(library.server(`redis://127.0.0.1:${address.port}`));
      backends.push(idle);
      const held = granted(await holder.backend.acquire(request('k')));
      let stale: TestGrant | 'busy' | undefined;
      idle.backend.acquire(request('k')).then(
        (answer) => (stale = answer),
        () => undefined,
      );
      await untilWaiting(idle);
      for (const process of await oldAdmin.zrange(SEEN, '0', '-1')) await oldAdmin.zincrby(SEEN, 60_000, process);
      await replicated();
      const watcher = oldAdmin.duplicate();
      const delivered: string[] = [];
      watcher.on('pmessage', (_pattern, channel) => delivered.push(channel));
      await watcher.psubscribe('*');
      await promote();
      await oldAdmin.call('REPLICAOF', ['127.0.0.1', String(next.port)]);
      const isLinked = async () => (await oldAdmin.info('replication')).includes('master_link_status:up');
      await until(isLinked, 'the old master replicates from the new one', 30_000);
      expect(await untilAnswered(() => holder.backend.release(held, RELEASE))).toBe('released');
      granted(await holder.backend.acquire(request('k')));
      await nextAdmin.publish('end', '');
      await until(() => delivered.includes('end'), 'the old master has delivered everything');
      watcher.disconnect();
      expect(delivered).toEqual(['end']);
      expect(stale).toBeUndefined();
    }, 120_000);
  },
);

// Recorded messages. For scripts on 6.2, see github.com/spring-projects/spring-data-redis/issues/3042; pcall returns
// the end of that message.
describe('isDemotion', () => {
  it.each([
    ['6.2, from a command', "READONLY You can't write against a read only replica."],
    [
      '6.2, from a script',
      "ERR Error running script (call to f_6f1ed002ab5595859014ebf0951522d9dd6c9a0e): @user_script:57: @user_script: 57: -READONLY You can't write against a read only replica. ",
    ],
    ['6.2, from a script that continues', "@user_script: 57: -READONLY You can't write against a read only replica."],
    [
      '6.2, without its master',
      "@user_script: 57: -MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    ],
    ['7.0', "READONLY You can't write against a read only replica. script: 6f1ed002, on @user_script:57."],
    ['7.4', "READONLY You can't write against a read only replica."],
    ['7.4, without its master', "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."],
  ])('recognizes the demotion error of %s', (_, message) => {
    expect(isDemotion(new Error(message))).toBe(true);
  });

  it.each([
    "OOM command not allowed when used memory > 'maxmemory'.",
    'WRONGTYPE Operation against a key holding the wrong kind of value',
    '@user_script: 57: -NOPERM this user has no permissions to run the set command',
  ])('does not match %s', (message) => {
    expect(isDemotion(new Error(message))).toBe(false);
  });
});
