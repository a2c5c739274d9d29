import { readFileSync } from 'node:fs';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { conformanceCases } from '../../lib/provider-kit/index.js';
import { MemoryServer } from './memory-server.js';

const page = (name: string) => readFileSync(new URL(`../../docs/${name}`, import.meta.url), 'utf8');

it('docs/conformance-kit.md lists the cases of the kit, all and no others', () => {
  const documented = new Set(page('conformance-kit.md').match(/(?<=`)#S?\d+[a-z]?(?=`)/g));
  const cases = conformanceCases(new MemoryServer(new MemoryStore()).harness()).map(({ id }) => id);
  expect(new Set(cases).size).toBe(cases.length);
  expect([...documented].sort()).toEqual([...cases].sort());
});

it('docs/write-a-provider.md shows the provider that passes the kit', () => {
  const source = readFileSync(new URL('small-provider.ts', import.meta.url), 'utf8')
    .replace('../../lib/index.js', 'nestjs-distributed-lock')
    .replace('../../lib/provider-kit/index.js', 'nestjs-distributed-lock/provider-kit');
  expect(page('write-a-provider.md')).toContain(`\`\`\`ts\n${source}\`\`\`\n`);
});
