import { jest } from '@jest/globals';
import { DenseSet } from '../../lib/core/toolkit/dense-set.js';
import { HolderTable } from '../../lib/core/toolkit/holder-table.js';
import { startManager } from './manager-rig.js';

it('the answer "busy" goes over none of the many locks that the process holds', async () => {
  const { locks } = await startManager();
  await locks.acquire('busy');
  for (let each = 0; each < 1_000; each += 1) await locks.acquire(`key ${each}`);
  const overAll = [jest.spyOn(HolderTable.prototype, 'values'), jest.spyOn(DenseSet.prototype, 'values')];
  expect(await locks.tryAcquire('busy')).toBeNull();
  for (const goesOver of overAll) {
    expect(goesOver).not.toHaveBeenCalled();
    goesOver.mockRestore();
  }
});
