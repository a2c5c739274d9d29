import { jest } from '@jest/globals';
import { HolderTable } from '../../lib/core/toolkit/holder-table.js';
import { startManager } from './manager-rig.js';

it('the answer "busy" goes over none of the many locks that the process holds', async () => {
  const { locks } = await startManager();
  await locks.acquire('busy');
  for (let each = 0; each < 1_000; each += 1) await locks.acquire(`key ${each}`);
  const goesOverAll = jest.spyOn(HolderTable.prototype, 'values');
  expect(await locks.tryAcquire('busy')).toBeNull();
  expect(goesOverAll).not.toHaveBeenCalled();
  goesOverAll.mockRestore();
});
