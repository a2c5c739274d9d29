import { expect } from '@jest/globals';
import { LockUnavailableError } from '../../lib/api/errors.js';
import { silentLogger } from '../../lib/api/logger.js';
import { hashSlotOf } from '../../lib/providers/redis/cluster-servers.js';
import { BUCKETS, KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { type ClusterNode, type RedisCluster, startRedisCluster } from '../servers/redis-cluster.js';
import { type Credentials, IOREDIS, NODE_REDIS } from './client-libraries.js';
import {
  ask,
  granted,
  RELEASE,
  request,
  type StartedBackend,
  startBackend,
  until,
  untilAnswered,
  untilWaiting,
} from './seam.js';
import type { TestGrant } from '../direct-backend.js';

const layout = new KeyLayout('lock');
const slotOf = (key: string) => hashSlotOf(String(layout.bucketIn(layout.lockOf(key))));

describe.each([IOREDIS, NODE_REDIS])('Redis Cluster faults, with %s', (library) => {
  let cluster: RedisCluster;
  const backends: StartedBackend[] = [];

  afterEach(async () => {
    await Promise.all(backends.splice(0).map(({ backend }) => backend.close()));
  });

  const masterOf = (key: string) => cluster.masters[Math.floor((slotOf(key) * 3) / 16_384)] as ClusterNode;
  const keyOn = (master: ClusterNode) =>
    Array.from({ length: 100 }, (_, index) => `k${index}`).find((key) => masterOf(key) === master) ?? '';
  const start = async (options: object = {}, credentials?: Credentials): Promise<StartedBackend> => {
    const started = await startBackend({
      ...library.cluster(cluster.addresses, { credentials }),
      commandTimeout: '2s',
      ...options,
    });
    backends.push(started);
    return started;
  };

  describe('a hung master with a replica', () => {
    beforeAll(async () => {
      // Long enough that a slow node does not count as dead.
      cluster = await startRedisCluster({ replicas: 1, nodeTimeout: 3_000 });
    }, 60_000);
    afterAll(() => cluster.stop());

    it('ignores what the old master replies on waking up once the provider knows that another master has its slots', async () => {
      const [old, other, third] = cluster.masters as [ClusterNode, ClusterNode, ClusterNode];
      const next = cluster.replicas[0] as ClusterNode;
      const { backend } = await start({ commandTimeout: '20s' });
      const [key, moved] = [keyOn(old), keyOn(other)];
      // The server knows the script, and the connections are idle.
      await backend.release(granted(await backend.acquire(request(key))), RELEASE);
      old.server.signal('SIGSTOP');
      // The old master reads this request first when it wakes up.
      const answer = backend.acquire(request(key, { wait: 0 })).catch(() => 'unknown' as const);
      await new Promise((resolve) => setTimeout(resolve, 50));
      await next.admin.call('CLUSTER', ['FAILOVER', 'TAKEOVER']);
      await until(async () => {
        const slots = (await other.admin.call('CLUSTER', ['SLOTS'])) as [number, number, [string, number]][];
        return slots.some(([first, , [, port]]) => first === 0 && port === next.server.port);
      }, 'the other masters know the new master');
      // Makes the provider fetch the slot map while its request to the old master is pending.
      await other.admin.call('CLUSTER', ['SETSLOT', String(slotOf(moved)), 'NODE', third.id]);
      await third.admin.call('CLUSTER', ['SETSLOT', String(slotOf(moved)), 'NODE', third.id]);
      granted(await backend.acquire(request(moved)));
      const again = request(key);
      const late = await untilAnswered(() => backend.acquire(again));
      old.server.signal('SIGCONT');
      // Busy if the old master already knows that it was demoted, and the request was redirected.
      expect(['unknown', 'busy']).toContain(await answer);
      expect(await next.admin.get(layout.lockOf(key))).toContain(again.id);
      expect(late).toMatchObject({ holder: again.id });
      await backend.release(again, RELEASE);
    }, 60_000);

    it('the replica takes over its locks, and keeps granting when the old master wakes up', async () => {
      const one = await start();
      const two = await start();
      const master = cluster.masters[2] as ClusterNode;
      const key = keyOn(master);
      const held = granted(await one.backend.acquire(request(key, { lease: 600_000 })));
      const waiter = ask(two.backend, request(key, { wait: 600_000 }));
      await untilWaiting(two);
      // WAIT covers the last write of its own connection, and with it all earlier writes.
      await until(async () => {
        await master.admin.set(`${layout.lockOf(key)}:written`, '', 'PX', 1_000);
        return (await master.admin.wait(1, 1_000)) === 1;
      }, 'the replica has replicated the lock');
      master.server.signal('SIGSTOP');
      const begun = performance.now();
      const moved = await untilAnswered(() => one.backend.renew(held, 600_000), 60_000);
      expect(moved).toMatchObject({ validUntil: expect.any(Number) });
      console.info(`Master of a Cluster hung: the lock was renewed after ${Math.round(performance.now() - begun)} ms.`);
      expect(one.events.map(({ type }) => type)).toEqual(expect.arrayContaining(['unavailable', 'recovered']));
      master.server.signal('SIGCONT');
      const tryOnce = () => two.backend.acquire(request(key, { wait: 0 })).catch(() => 'unknown' as const);
      const asks: Promise<unknown>[] = [];
      for (const end = performance.now() + 500; performance.now() < end;) {
        asks.push(tryOnce());
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
      // The second provider may not have reached the new master yet.
      expect(['busy', 'unknown']).toEqual(expect.arrayContaining([...new Set(await Promise.all(asks))]));
      expect(await untilAnswered(tryOnce)).toBe('busy');
      expect(await untilAnswered(() => one.backend.release(held, RELEASE))).toBe('released');
      const next = granted(await waiter);
      expect(next.fencingToken).toBeGreaterThan(held.fencingToken ?? 0n);
      await two.backend.release(next, RELEASE);
    }, 120_000);
  });

  describe('a master that is cut off from the other nodes but not from its clients', () => {
    beforeAll(async () => {
      cluster = await startRedisCluster({ replicas: 1, nodeTimeout: 1_000, hasWiredBus: true });
    }, 60_000);
    afterAll(() => cluster.stop());

    it('is abandoned for its promoted replica, although it claims to be the master until the partition heals', async () => {
      const [old, other] = cluster.masters as [ClusterNode, ClusterNode];
      const replica = cluster.replicas[0] as ClusterNode;
      const { backend } = await start();
      const key = keyOn(old);
      const held = granted(await backend.acquire(request(key, { lease: 600_000 })));
      // WAIT covers the last write of its own connection, and with it all earlier writes.
      await old.admin.set(`${layout.lockOf(key)}:written`, '', 'PX', 1_000);
      expect(await old.admin.wait(1, 10_000)).toBe(1);

      cluster.cutOff(old);
      const masterAccordingTo = async ({ admin }: ClusterNode) => {
        const slots = (await admin.call('CLUSTER', ['SLOTS'])) as [number, number, [string, number]][];
        return slots.find(([first, last]) => first <= slotOf(key) && slotOf(key) <= last)?.[2][1];
      };
      await until(async () => (await masterAccordingTo(other)) === replica.server.port, 'the replica is promoted');
      await until(
        async () => String(await old.admin.call('CLUSTER', ['INFO'])).includes('state:fail'),
        'the old master refuses requests',
      );
      expect(await untilAnswered(() => backend.renew(held, 600_000))).toMatchObject({
        validUntil: expect.any(Number),
      });
      expect(await masterAccordingTo(old)).toBe(old.server.port);

      expect(await backend.release(held, RELEASE)).toBe('released');
      expect(await replica.admin.exists(layout.lockOf(key))).toBe(0);
      cluster.join();
    }, 60_000);
  });

  describe('masters without replicas', () => {
    beforeAll(async () => {
      // No test waits for a node to count as dead. The startup retries a lost handshake after this time.
      cluster = await startRedisCluster({ nodeTimeout: 5_000, args: ['--cluster-require-full-coverage', 'no'] });
      for (const { admin } of cluster.masters) {
        await admin.call('ACL', ['SETUSER', 'locks', 'on', '>secret', '~*', '&*', '+@all']);
      }
    }, 60_000);
    afterAll(() => cluster.stop());

    const channels = async (master: ClusterNode) =>
      ((await master.admin.call('PUBSUB', ['SHARDCHANNELS'])) as string[]).length;
    const give = async (slot: number, to: ClusterNode, nodes: readonly ClusterNode[]) => {
      for (const { admin } of nodes) await admin.call('CLUSTER', ['SETSLOT', String(slot), 'NODE', to.id]);
    };

    it('a hung master is noticed within seconds; its locks stay valid until their deadline, and survive when it wakes up', async () => {
      const one = await start({ commandTimeout: '1s' });
      const master = cluster.masters[1] as ClusterNode;
      const key = keyOn(master);
      const held = granted(await one.backend.acquire(request(key, { lease: 600_000 })));
      master.server.signal('SIGSTOP');
      try {
        const begun = performance.now();
        expect(await one.backend.renew(held, 600_000)).toBe('unknown');
        await expect(one.backend.acquire(request(key))).rejects.toThrow(/did not respond/);
        // Two waits of one second each. The request itself would wait a minute.
        expect(performance.now() - begun).toBeLessThan(20_000);
        expect(one.events).toContainEqual(expect.objectContaining({ type: 'unavailable' }));
        expect(held.validUntil).toBeGreaterThan(performance.now());
      } finally {
        master.server.signal('SIGCONT');
      }
      const renewed = await untilAnswered(() => one.backend.renew(held, 600_000));
      expect(renewed).toMatchObject({ validUntil: expect.any(Number) });
      await untilAnswered(() => one.backend.release(held, RELEASE));
    }, 60_000);

    it('a hung master delays no renewal on another master', async () => {
      const one = await start({ commandTimeout: '60s' });
      const holds = await Promise.all(
        cluster.masters.map(async (master) => granted(await one.backend.acquire(request(keyOn(master))))),
      );
      const [hung, ...healthy] = holds as [TestGrant, ...TestGrant[]];
      const answers: unknown[] = [];
      cluster.masters[0]?.server.signal('SIGSTOP');
      // The watchdog also sends renewals in one tick.
      const late = one.backend.renew(hung, 30_000).then((outcome) => answers.push(outcome));
      try {
        const renewed = await Promise.all(healthy.map((grant) => one.backend.renew(grant, 30_000)));
        expect(renewed).toEqual(healthy.map(() => ({ validUntil: expect.any(Number) })));
        expect(answers).toEqual([]);
      } finally {
        cluster.masters[0]?.server.signal('SIGCONT');
      }
      await late;
      await Promise.all(holds.map(async (grant) => one.backend.release(grant, RELEASE)));
      // Later tests move slots, and a slot that still has a counter can't be moved.
      await Promise.all(cluster.masters.map(({ admin }) => admin.flushall()));
    }, 60_000);

    it('retries a subscription that the new master of a slot refuses at first', async () => {
      const one = await start();
      const [from, to] = cluster.masters as [ClusterNode, ClusterNode];
      const buckets = [...new Set(Array.from({ length: 100 }, (_, index) => slotOf(`k${index}`)))];
      const [late = 0, other = 0] = buckets.filter((slot) => Math.floor((slot * 3) / 16_384) === 0);
      const before = await channels(to);
      // The old owner knows about both moves, the new owner about one. Locks in that slot make the provider fetch the
      // map.
      await give(late, to, [from]);
      await give(other, to, [to, from]);
      const key = Array.from({ length: 100 }, (_, index) => `k${index}`).find((each) => slotOf(each) === other) ?? '';
      await one.backend.release(granted(await one.backend.acquire(request(key))), RELEASE);
      await until(async () => (await channels(to)) > before, 'the provider listens on the first channel');
      await give(late, to, [to]);
      await until(async () => (await channels(to)) === before + 2, 'the provider listens on both channels');
    }, 60_000);

    it('each master warns a process that may not subscribe, and the process subscribes once it may', async () => {
      const admins = cluster.masters.map(({ admin }) => admin);
      const change = (...rules: string[]) =>
        Promise.all(admins.map((admin) => admin.call('ACL', ['SETUSER', 'deaf', ...rules])));
      const all = async () => (await Promise.all(cluster.masters.map(channels))).reduce((sum, count) => sum + count, 0);
      const warnings: string[] = [];
      const logger = { ...silentLogger, warn: (message: string) => warnings.push(message) };
      await change('on', '>secret', '~*', 'resetchannels', '+@all');
      await until(async () => (await all()) === 0, 'no process listens');
      const credentials = { username: 'deaf', password: 'secret' };
      backends.push(await startBackend(library.cluster(cluster.addresses, { credentials }), { logger }));
      await until(() => warnings.length === cluster.masters.length, 'each master has denied the channels');
      expect(await all()).toBe(0);
      await change('allchannels');
      await until(async () => (await all()) === BUCKETS, 'the process listens');
      expect(warnings).toEqual(admins.map(() => expect.stringMatching(/Grant SSUBSCRIBE on "lock:\{\d+\}/)));
    }, 60_000);

    it('a bucket whose slot no master serves at startup can be locked once one does', async () => {
      const owner = cluster.masters[1] as ClusterNode;
      const key = keyOn(owner);
      const slot = slotOf(key);
      const serves = async ({ admin }: ClusterNode) => {
        const ranges = (await admin.call('CLUSTER', ['SLOTS'])) as [number, number][];
        return ranges.some(([first, last]) => first <= slot && slot <= last);
      };
      // Starts with the owner: otherwise its next message would return the slot to it.
      for (const master of [owner, ...cluster.masters]) {
        if (await serves(master)) await master.admin.call('CLUSTER', ['DELSLOTS', String(slot)]);
      }
      const one = await start();
      await expect(one.backend.acquire(request(key, { wait: 0 }))).rejects.toThrow(LockUnavailableError);
      await owner.admin.call('CLUSTER', ['ADDSLOTS', String(slot)]);
      const grant = granted(await untilAnswered(() => one.backend.acquire(request(key))));
      expect(await one.backend.release(grant, RELEASE)).toBe('released');
      expect(one.events.map(({ type }) => type)).not.toContain('unavailable');
    }, 60_000);

    it('if no node returns the slot map any more, a request fails in time, without an unhandled rejection', async () => {
      const one = await start({}, { username: 'locks', password: 'secret' });
      const [to, , from] = cluster.masters as [ClusterNode, ClusterNode, ClusterNode];
      const key = keyOn(from);
      const rejections: unknown[] = [];
      const onRejection = (reason: unknown) => rejections.push(reason);
      process.on('unhandledRejection', onRejection);
      for (const { admin } of cluster.masters) await admin.call('ACL', ['SETUSER', 'locks', '-cluster']);
      await give(slotOf(key), to, [to, from]);
      await expect(one.backend.acquire(request(key))).rejects.toThrow(/MOVED/);
      for (const { admin } of cluster.masters) await admin.call('ACL', ['SETUSER', 'locks', '+cluster']);
      const grant = granted(await one.backend.acquire(request(key)));
      await one.backend.release(grant, RELEASE);
      process.off('unhandledRejection', onRejection);
      expect(rejections).toEqual([]);
    }, 60_000);
  });
});
