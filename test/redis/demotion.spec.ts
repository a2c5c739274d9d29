import { expect } from '@jest/globals';
import { Redis } from 'ioredis';
import { isDemotion } from '../../lib/providers/redis/client/refusals.js';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';
import { IOREDIS, NODE_REDIS } from './client-libraries.js';
import {
  granted,
  RELEASE,
  request,
  type StartedBackend,
  startBackend,
  until,
  untilAnswered,
  untilWaiting,
  ask,
} from './seam.js';
import type { TestGrant } from '../direct-backend.js';

const SEEN = `${new KeyLayout('lock').counter}seen`;

// A master, its replica, and an address that leads to whichever of the two is the master: new connections, not those that stand.
describe.each([IOREDIS, NODE_REDIS])(
  'a master that hands off, and connections to it that stay open, by %s',
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
      await until(async () => (await oldAdmin.info('replication')).includes('state=online'), 'it follows');
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
    const promote = async () => {
      await nextAdmin.call('REPLICAOF', ['NO', 'ONE']);
      address.leadTo(next.port);
    };
    const replicated = async () => {
      await oldAdmin.set('last', '1');
      await until(async () => (await nextAdmin.get('last')) !== null, 'it has all');
    };

    it.each([
      ['READONLY', 'yes'],
      ['MASTERDOWN', 'no'],
    ])('a renewal that is answered with %s finds the new master', async (_, stale) => {
      const { backend } = await start(2_000);
      const grant = granted(await backend.acquire(request('k')));
      await replicated();
      await promote();
      await oldAdmin.config('SET', 'replica-serve-stale-data', stale);
      // Of a server that is not there, so that the link stays down.
      await oldAdmin.call('REPLICAOF', ['127.0.0.1', '1']);
      const renewed = await untilAnswered(() => backend.renew(grant, 30_000));
      expect(renewed).toMatchObject({ validUntil: expect.any(Number) });
      expect(await nextAdmin.get('lock:{10}:k')).toContain(grant.holder);
    });

    it('a grant that a hung master sends when it wakes up is not believed by who has left it with its commands', async () => {
      const holder = await start(1_000);
      // Notices last that the master hangs.
      const slow = await start(8_000);
      const other = await start(1_000);
      const held = granted(await holder.backend.acquire(request('k')));
      let stale: TestGrant | 'busy' | undefined;
      void ask(slow.backend, request('k')).then((answer) => (stale = answer));
      await untilWaiting(slow);
      const waiter = ask(other.backend, request('k'));
      await untilWaiting(other);
      // Each waiter counts as alive for a minute from now: the old master hangs for longer than the 3 s that it gives them.
      for (const process of await oldAdmin.zrange(SEEN, '0', '-1')) await oldAdmin.zincrby(SEEN, 60_000, process);
      await replicated();
      old.signal('SIGSTOP');
      await promote();
      // The first release stays unread at the old master, and would hand over to the head of its queue.
      expect(await untilAnswered(() => holder.backend.release(held, RELEASE))).toBe('released');
      const grant = granted(await waiter);
      // A provisional lease would end before the slow one is there.
      expect(await other.backend.renew(grant, 600_000)).toMatchObject({});
      await until(() => slow.events.some(({ type }) => type === 'recovered'), 'the slow one is at the new master');
      await until(async () => (await other.backend.inspect('k'))?.waiters === 1, 'and waits there');
      old.signal('SIGCONT');
      await until(
        async () => (await oldAdmin.get('lock:{10}:k'))?.includes(held.holder) !== true,
        'the old one has read it',
      );
      // Whatever it has sent has arrived by then.
      await new Promise((resolve) => setTimeout(resolve, 100));
      expect(stale).toBeUndefined();
      expect(await other.backend.release(grant, RELEASE)).toBe('released');
      await until(() => stale !== undefined, 'its turn comes');
      expect(granted(stale as TestGrant).fencingToken).toBeGreaterThan(grant.fencingToken ?? 0n);
    }, 120_000);
  },
);

// As they were recorded. That of a script on 6.2: github.com/spring-projects/spring-data-redis/issues/3042; what pcall makes of it is its end.
describe('an error that says that a master was demoted', () => {
  it.each([
    ['6.2, from a command', "READONLY You can't write against a read only replica."],
    [
      '6.2, from a script',
      "ERR Error running script (call to f_6f1ed002ab5595859014ebf0951522d9dd6c9a0e): @user_script:57: @user_script: 57: -READONLY You can't write against a read only replica. ",
    ],
    ['6.2, from a script that goes on', "@user_script: 57: -READONLY You can't write against a read only replica."],
    [
      '6.2, without its master',
      "@user_script: 57: -MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    ],
    ['7.0', "READONLY You can't write against a read only replica. script: 6f1ed002, on @user_script:57."],
    ['7.4', "READONLY You can't write against a read only replica."],
    ['7.4, without its master', "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."],
  ])('is recognized as %s words it', (_, message) => {
    expect(isDemotion(new Error(message))).toBe(true);
  });

  it.each([
    "OOM command not allowed when used memory > 'maxmemory'.",
    'WRONGTYPE Operation against a key holding the wrong kind of value',
    '@user_script: 57: -NOPERM this user has no permissions to run the set command',
  ])('is not %s', (message) => {
    expect(isDemotion(new Error(message))).toBe(false);
  });
});
