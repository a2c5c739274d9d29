import { ZooKeeperLockProvider } from '../../lib/providers/zookeeper/index.js';
import { deployOtherSchedule } from '../recipes/jobs/new-schedule.js';
import { SkewedFleet } from '../recipes/jobs/skewed-fleet.js';
import { startZooKeeper, type ZooKeeperServer } from '../servers/zookeeper-server.mjs';
import { until } from '../until.js';

let server: ZooKeeperServer;
beforeAll(async () => {
  server = await startZooKeeper();
}, 60_000);
afterAll(() => server.stop());

const provider = () =>
  Promise.resolve(new ZooKeeperLockProvider({ connectString: server.connectString, sessionTimeout: 20_000 }));

it('ticks are begun once by instances whose clocks are wrong, also around an outage of three ticks', async () => {
  const fleet = new SkewedFleet(async () => ({ main: await provider() }), { catchUp: '1m' });
  await fleet.start();
  await until(() => fleet.begun.length >= 8, 'eight ticks', 60_000);
  await server.kill();
  const downUntil = Date.now() + 3_500;
  await until(() => Date.now() > downUntil, 'three ticks are due', 60_000);
  await server.restart();
  const before = fleet.begun.length;
  await until(() => fleet.begun.length >= before + 3, 'ticks after the outage', 60_000);
  await fleet.stop();
  fleet.expectEachTickOnce();
}, 180_000);

it('nothing runs for what an earlier schedule has run', () => deployOtherSchedule(provider), 120_000);
