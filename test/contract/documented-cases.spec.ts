import { readFileSync } from 'node:fs';
import { LockTable } from '../../lib/providers/memory/lock-table.js';
import { conformanceCases } from '../../lib/testing/index.js';
import { MemoryBackend } from './memory-backend.js';

it('docs/testing-a-provider.md lists the cases of the kit, all and no others', () => {
  const docs = readFileSync(new URL('../../docs/testing-a-provider.md', import.meta.url), 'utf8');
  const documented = new Set(docs.match(/(?<=`)#S?\d+[a-z]?(?=`)/g));
  const cases = conformanceCases(new MemoryBackend(new LockTable()).harness()).map(({ id }) => id);
  expect(new Set(cases).size).toBe(cases.length);
  expect([...documented].sort()).toEqual([...cases].sort());
});
