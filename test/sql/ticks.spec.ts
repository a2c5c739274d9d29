import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
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
      expect(fleet.errors).toEqual([]);
      expect(fleet.begun).toEqual([...new Set(fleet.begun)].sort((one, other) => one - other));
    },
    120_000,
  );
});
