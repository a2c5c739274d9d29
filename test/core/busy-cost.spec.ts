import { jest } from '@jest/globals';
import { DenseSet } from '../../lib/core/toolkit/dense-set.js';
import { startManager } from './manager-rig.js';

it('the answer "busy" goes over none of the many locks that the process holds', async () => {
  const { locks } = await startManager();
  await locks.acquire('busy');
  for (let each = 0; each < 1_000; each += 1) await locks.acquire(`key ${each}`);
  const overAll = [
    jest.spyOn(DenseSet.prototype, 'values'),
    ...(['values', 'keys', 'entries', 'forEach'] as const).map((goOver) => jest.spyOn(Map.prototype, goOver)),
  ];
  expect(await locks.tryAcquire('busy')).toBeNull();
  const over = overAll.flatMap(({ mock }) => mock.contexts as unknown as readonly { readonly size: number }[]);
  for (const goesOver of overAll) goesOver.mockRestore();
  // Those of Jest are smaller.
  expect(over.filter(({ size }) => size >= 1_000)).toEqual([]);
});
