import { expect, it } from '@jest/globals';
import { ZooKeeperLockProvider } from '../../lib/providers/zookeeper/index.js';
import { SkewedFleet } from '../recipes/jobs/skewed-fleet.js';
import { startZooKeeper } from '../servers/zookeeper-server.mjs';
import { until } from '../until.js';

it('ticks are begun once by instances whose clocks are wrong', async () => {
  const server = await startZooKeeper();
  const { connectString } = server;
  const fleet = new SkewedFleet(async () => ({
    main: new ZooKeeperLockProvider({ connectString, sessionTimeout: 20_000 }),
  }));
  try {
    await fleet.start();
    await until(() => fleet.begun.length >= 8, 'eight ticks', 60_000);
    await fleet.stop();
  } finally {
    await server.stop();
  }
  expect(fleet.errors).toEqual([]);
  expect(fleet.begun).toEqual([...new Set(fleet.begun)].sort((one, other) => one - other));
}, 180_000);
