import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { SkewedFleet } from '../recipes/jobs/skewed-fleet.js';
import { startRedisServer } from '../servers/redis-server.mjs';
import { until } from '../until.js';

/** So many ticks are due while Redis does not answer. */
const OUTAGE = 3;

it('no tick is begun twice around an outage of three ticks, and those after it are begun', async () => {
  const server = await startRedisServer();
  const fleet = new SkewedFleet(
    async () => ({ main: new RedisLockProvider({ url: server.url, commandTimeout: 500 }) }),
    {
      catchUp: '1m',
    },
  );
  let before: number;
  try {
    await fleet.start();
    await until(() => fleet.begun.length >= 3, 'three ticks', 60_000);
    server.signal('SIGSTOP');
    before = fleet.begun.length;
    const frozenUntil = Date.now() + OUTAGE * 1_000 + 500;
    await until(() => Date.now() > frozenUntil, 'three ticks are due', 60_000);
    // One may have been on its way.
    expect(fleet.begun.length).toBeLessThanOrEqual(before + 1);
    server.signal('SIGCONT');
    before = fleet.begun.length;
    await until(() => fleet.begun.length >= before + 3, 'ticks after the outage', 60_000);
    await fleet.stop();
  } finally {
    server.signal('SIGCONT');
    await server.stop();
  }
  fleet.expectEachTickOnce();
}, 180_000);
