import { readFileSync } from 'node:fs';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { conformanceCases } from '../../lib/provider-kit/index.js';
import { MemoryServer } from './memory-server.js';

it('docs/testing-a-provider.md lists the cases of the kit, all and no others', () => {
  const docs = readFileSync(new URL('../../docs/testing-a-provider.md', import.meta.url), 'utf8');
  const documented = new Set(docs.match(/(?<=`)#S?\d+[a-z]?(?=`)/g));
  const cases = conformanceCases(new MemoryServer(new MemoryStore()).harness()).map(({ id }) => id);
  expect(new Set(cases).size).toBe(cases.length);
  expect([...documented].sort()).toEqual([...cases].sort());
});
