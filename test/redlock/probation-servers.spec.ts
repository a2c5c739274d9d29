import { LockUnavailableError } from '../../lib/api/errors.js';
import { RedlockKeyLayout } from '../../lib/providers/redlock/key-layout.js';
import { FakeClock } from '../../lib/testing/index.js';
import { request, until } from '../redis/seam.js';
import { makeServerClock, NO_COMPILER } from '../servers/server-clock.js';
import { type Quorum, type StartedRedlock, startQuorum, startRedlock } from './quorum.js';
import { describeUnless } from '../unless.js';

const RUN = new RedlockKeyLayout('lock').run;
const MAX_LEASE = 600_000;
const ONE_ATTEMPT = { wait: 0, lease: 60_000 };

const wallClock = makeServerClock();

// Each process counts on a fake clock, so a probation takes no time here.
describeUnless(wallClock ? undefined : NO_COMPILER)(
  'delayedRestart on nodes whose wall clocks are corrected just after the boot',
  () => {
    let quorum: Quorum;
    const started: StartedRedlock[] = [];
    const start = async () => {
      const clock = new FakeClock();
      // It counts on the same clock, so a short one would pass while the test advances it.
      const terms = { maxLease: MAX_LEASE, delayedRestart: true, commandTimeout: '1h' };
      const redlock = await startRedlock({ ...quorum, ...terms }, { clock });
      started.push(redlock);
      return { clock, backend: redlock.backend, take: () => redlock.backend.acquire(request('order', ONE_ATTEMPT)) };
    };
    const noted = async () => {
      const [values, infos] = [
        await Promise.all(quorum.admins.map((admin) => admin.get(RUN))),
        await Promise.all(quorum.admins.map((admin) => admin.info('server'))),
      ];
      return values.every((value, node) => value === `${/^run_id:(\w+)/m.exec(infos[node]!)?.[1]} ${MAX_LEASE}`);
    };
    beforeAll(async () => {
      quorum = await startQuorum(3, { env: wallClock?.env ?? {} });
      wallClock?.step(24 * 3_600_000);
    });
    afterEach(async () => {
      for (const { backend } of started.splice(0)) await backend.close();
    });
    afterAll(async () => {
      await quorum.stop();
      wallClock?.remove();
    });

    it('a majority votes when one process has counted maxLease, whatever their uptime; other processes need not count again', async () => {
      const ann = await start();
      expect(await quorum.admins[0]!.info('server')).toMatch(/^uptime_in_seconds:8640\d/m);
      await expect(ann.take()).rejects.toBeInstanceOf(LockUnavailableError);
      await expect(ann.take()).rejects.toMatchObject({
        cause: { message: expect.stringContaining('does not vote yet') as string },
      });
      await ann.clock.advance(MAX_LEASE - 1);
      await expect(ann.take()).rejects.toBeInstanceOf(LockUnavailableError);
      expect(await noted()).toBe(false);
      await ann.clock.advance(1);
      expect(await ann.take()).not.toBe('busy');
      await until(noted, 'the runs are noted on the nodes');
      // Its clock is at zero.
      const bob = await start();
      expect(await bob.take()).toBe('busy');
    });

    it('a node that restarts is counted again', async () => {
      await Promise.all(quorum.servers.slice(0, 2).map((server) => server.crash()));
      const ann = await start();
      await expect(ann.take()).rejects.toBeInstanceOf(LockUnavailableError);
      await ann.clock.advance(MAX_LEASE);
      expect(await ann.take()).not.toBe('busy');
      await until(noted, 'the runs are noted on the nodes');
    });
  },
);
