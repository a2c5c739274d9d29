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

describe.each([IOREDIS, NODE_REDIS])('what goes wrong in a Redis Cluster, by %s', (library) => {
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

  describe('a master that hangs, with a replica', () => {
    beforeAll(async () => {
      // A node counts as dead after 3 s, so a slow node does not.
      cluster = await startRedisCluster({ replicas: 1, nodeTimeout: 3_000 });
    }, 60_000);
    afterAll(() => cluster.stop());

    it('what it answers when it wakes up is not believed by who knows that another one has its slots', async () => {
      const [old, other, third] = cluster.masters as [ClusterNode, ClusterNode, ClusterNode];
      const next = cluster.replicas[0] as ClusterNode;
      const { backend } = await start({ commandTimeout: '20s' });
      const [key, moved] = [keyOn(old), keyOn(other)];
      // Its script is known, and its links idle.
      await backend.release(granted(await backend.acquire(request(key))), RELEASE);
      old.server.signal('SIGSTOP');
      // The first that it reads when it wakes up.
      const answer = backend.acquire(request(key, { wait: 0 })).catch(() => 'unknown' as const);
      await new Promise((resolve) => setTimeout(resolve, 50));
      await next.admin.call('CLUSTER', ['FAILOVER', 'TAKEOVER']);
      await until(async () => {
        const slots = (await other.admin.call('CLUSTER', ['SLOTS'])) as [number, number, [string, number]][];
        return slots.some(([first, , [, port]]) => first === 0 && port === next.server.port);
      }, 'the others know the new master');
      // So that the provider asks for the map, while its ask of the old master is not answered.
      await other.admin.call('CLUSTER', ['SETSLOT', String(slotOf(moved)), 'NODE', third.id]);
      await third.admin.call('CLUSTER', ['SETSLOT', String(slotOf(moved)), 'NODE', third.id]);
      granted(await backend.acquire(request(moved)));
      const again = request(key);
      const late = await untilAnswered(() => backend.acquire(again));
      old.server.signal('SIGCONT');
      // Busy when it has learned meanwhile that it is no master any more, and the ask was sent on.
      expect(['unknown', 'busy']).toContain(await answer);
      expect(await next.admin.get(layout.lockOf(key))).toContain(again.id);
      expect(late).toMatchObject({ holder: again.id });
      await backend.release(again, RELEASE);
    }, 60_000);

    it('the replica takes over its holds, and grants go on with it when the old master wakes up', async () => {
      const one = await start();
      const two = await start();
      const master = cluster.masters[2] as ClusterNode;
      const key = keyOn(master);
      const held = granted(await one.backend.acquire(request(key, { lease: 600_000 })));
      const waiter = ask(two.backend, request(key, { wait: 600_000 }));
      await untilWaiting(two);
      // WAIT covers the own last write of a connection, and with it all that came before.
      await until(async () => {
        await master.admin.set(`${layout.lockOf(key)}:written`, '', 'PX', 1_000);
        return (await master.admin.wait(1, 1_000)) === 1;
      }, 'the replica has it');
      master.server.signal('SIGSTOP');
      const begun = performance.now();
      const moved = await untilAnswered(() => one.backend.renew(held, 600_000), 60_000);
      expect(moved).toMatchObject({ validUntil: expect.any(Number) });
      console.info(`Master of a Cluster hung: the hold was renewed after ${Math.round(performance.now() - begun)} ms.`);
      expect(one.events.map(({ type }) => type)).toEqual(expect.arrayContaining(['unavailable', 'recovered']));
      master.server.signal('SIGCONT');
      const tryOnce = () => two.backend.acquire(request(key, { wait: 0 })).catch(() => 'unknown' as const);
      const asks: Promise<unknown>[] = [];
      for (const end = performance.now() + 500; performance.now() < end;) {
        asks.push(tryOnce());
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
      // The second provider may still be on its way to the new master.
      expect(['busy', 'unknown']).toEqual(expect.arrayContaining([...new Set(await Promise.all(asks))]));
      expect(await untilAnswered(tryOnce)).toBe('busy');
      expect(await untilAnswered(() => one.backend.release(held, RELEASE))).toBe('released');
      const next = granted(await waiter);
      expect(next.fencingToken).toBeGreaterThan(held.fencingToken ?? 0n);
      await two.backend.release(next, RELEASE);
    }, 120_000);
  });

  describe('a master that is cut off from the other nodes, and not from its clients', () => {
    beforeAll(async () => {
      cluster = await startRedisCluster({ replicas: 1, nodeTimeout: 1_000, hasWiredBus: true });
    }, 60_000);
    afterAll(() => cluster.stop());

    it('is left for its replica that was promoted, although it names itself as the master as long as the cut lasts', async () => {
      const [old, other] = cluster.masters as [ClusterNode, ClusterNode];
      const replica = cluster.replicas[0] as ClusterNode;
      const { backend } = await start();
      const key = keyOn(old);
      const held = granted(await backend.acquire(request(key, { lease: 600_000 })));
      // WAIT covers the own last write of a connection, and with it all that came before.
      await old.admin.set(`${layout.lockOf(key)}:written`, '', 'PX', 1_000);
      expect(await old.admin.wait(1, 10_000)).toBe(1);

      cluster.cutOff(old);
      const masterAccordingTo = async ({ admin }: ClusterNode) => {
        const slots = (await admin.call('CLUSTER', ['SLOTS'])) as [number, number, [string, number]][];
        return slots.find(([first, last]) => first <= slotOf(key) && slotOf(key) <= last)?.[2][1];
      };
      await until(async () => (await masterAccordingTo(other)) === replica.server.port, 'the replica is promoted');
      await until(async () => String(await old.admin.call('CLUSTER', ['INFO'])).includes('state:fail'), 'it refuses');
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
      // No test waits until a node counts as dead. The start tries a lost handshake again after this time.
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

    it('one that hangs is noticed in seconds; its holds are valid until their deadline, and go on when it wakes up', async () => {
      const one = await start({ commandTimeout: '1s' });
      const master = cluster.masters[1] as ClusterNode;
      const key = keyOn(master);
      const held = granted(await one.backend.acquire(request(key, { lease: 600_000 })));
      master.server.signal('SIGSTOP');
      try {
        const begun = performance.now();
        expect(await one.backend.renew(held, 600_000)).toBe('unknown');
        await expect(one.backend.acquire(request(key))).rejects.toThrow(/did not respond/);
        // Two waits of one second each. The wait of the request is a minute.
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

    it('one that hangs delays no renewal on another master', async () => {
      const one = await start({ commandTimeout: '60s' });
      const holds = await Promise.all(
        cluster.masters.map(async (master) => granted(await one.backend.acquire(request(keyOn(master))))),
      );
      const [hung, ...healthy] = holds as [TestGrant, ...TestGrant[]];
      const answers: unknown[] = [];
      cluster.masters[0]?.server.signal('SIGSTOP');
      // In one tick, as the watchdog sends them.
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
      // The next tests move slots, and one in which a counter stays cannot be moved.
      await Promise.all(cluster.masters.map(({ admin }) => admin.flushall()));
    }, 60_000);

    it('a channel that the new master of a slot refuses at first is asked for again', async () => {
      const one = await start();
      const [from, to] = cluster.masters as [ClusterNode, ClusterNode];
      const buckets = [...new Set(Array.from({ length: 100 }, (_, index) => slotOf(`k${index}`)))];
      const [late = 0, other = 0] = buckets.filter((slot) => Math.floor((slot * 3) / 16_384) === 0);
      const before = await channels(to);
      // The one who gives knows of both, the one who takes of one: that one's locks make the provider look.
      await give(late, to, [from]);
      await give(other, to, [to, from]);
      const key = Array.from({ length: 100 }, (_, index) => `k${index}`).find((each) => slotOf(each) === other) ?? '';
      await one.backend.release(granted(await one.backend.acquire(request(key))), RELEASE);
      await until(async () => (await channels(to)) > before, 'it listens for the one');
      await give(late, to, [to]);
      await until(async () => (await channels(to)) === before + 2, 'it listens for both');
    }, 60_000);

    it('a process that was denied its channels is told so by each master, and listens to them when they are granted', async () => {
      const admins = cluster.masters.map(({ admin }) => admin);
      const change = (...rules: string[]) =>
        Promise.all(admins.map((admin) => admin.call('ACL', ['SETUSER', 'deaf', ...rules])));
      const all = async () => (await Promise.all(cluster.masters.map(channels))).reduce((sum, count) => sum + count, 0);
      const warnings: string[] = [];
      const logger = { ...silentLogger, warn: (message: string) => warnings.push(message) };
      await change('on', '>secret', '~*', 'resetchannels', '+@all');
      await until(async () => (await all()) === 0, 'nobody listens');
      const credentials = { username: 'deaf', password: 'secret' };
      backends.push(await startBackend(library.cluster(cluster.addresses, { credentials }), { logger }));
      await until(() => warnings.length === cluster.masters.length, 'each master has denied them');
      expect(await all()).toBe(0);
      await change('allchannels');
      await until(async () => (await all()) === BUCKETS, 'it listens');
      expect(warnings).toEqual(admins.map(() => expect.stringMatching(/Grant SSUBSCRIBE on "lock:\{\d+\}/)));
    }, 60_000);

    it('a bucket whose slot no master serves at the start can be locked once one does', async () => {
      const owner = cluster.masters[1] as ClusterNode;
      const key = keyOn(owner);
      const slot = slotOf(key);
      const serves = async ({ admin }: ClusterNode) => {
        const ranges = (await admin.call('CLUSTER', ['SLOTS'])) as [number, number][];
        return ranges.some(([first, last]) => first <= slot && slot <= last);
      };
      // The owner first: otherwise, its next message would give the slot back to it.
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

    it('where nobody tells the map any more, an ask is refused in time, and no rejection is left alone', async () => {
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
