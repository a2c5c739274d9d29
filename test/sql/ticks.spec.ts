import { deployOtherSchedule } from '../recipes/jobs/new-schedule.js';
import { SkewedFleet } from '../recipes/jobs/skewed-fleet.js';
import { SqlBackend } from '../typeorm/sql-backend.js';
import { until } from '../until.js';

describe.each(['mariadb', 'postgres'] as const)('ticks on %s', (type) => {
  let backend: SqlBackend;
  beforeAll(async () => {
    backend = await SqlBackend.start(type);
  }, 60_000);
  afterAll(() => backend.stop());

  it.each([
    ['version', () => backend.leases()],
    ['row', () => backend.rows()],
    ['advisory', () => backend.advisory()],
  ] as const)(
    'are begun once by instances whose clocks are wrong, with %s locks',
    async (kind, providerOf) => {
      const fleet = new SkewedFleet(async () => ({ main: await providerOf() }));
      await fleet.start();
      await until(() => fleet.begun.length >= 5, `five ticks with ${kind} locks`, 60_000);
      await fleet.stop();
      fleet.expectEachTickOnce();
    },
    120_000,
  );

  it('nothing runs for what an earlier schedule has run', () => deployOtherSchedule(() => backend.leases()), 120_000);

  it('are begun once around an outage of three of them, and go on after it', async () => {
    const fleet = new SkewedFleet(async () => ({ main: await backend.leases() }), { catchUp: '1m' });
    await fleet.start();
    await until(() => fleet.begun.length >= 3, 'three ticks', 60_000);
    await backend.server.crash({ downFor: 3_500 });
    const before = fleet.begun.length;
    await until(() => fleet.begun.length >= before + 3, 'ticks after the outage', 60_000);
    await fleet.stop();
    fleet.expectEachTickOnce();
  }, 180_000);
});
