import { readFileSync } from 'node:fs';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { conformanceCases } from '../../lib/provider-kit/index.js';
import { MemoryServer } from './memory-server.js';

it('no two cases of the kit share an id', () => {
  const cases = conformanceCases(new MemoryServer(new MemoryStore()).harness()).map(({ id }) => id);
  expect(new Set(cases).size).toBe(cases.length);
});

it('docs/write-a-provider.md shows the provider that passes the kit', () => {
  const source = readFileSync(new URL('small-provider.ts', import.meta.url), 'utf8')
    .replace('../../lib/index.js', 'nestjs-distributed-lock')
    .replace('../../lib/provider-kit/index.js', 'nestjs-distributed-lock/provider-kit');
  const page = readFileSync(new URL('../../docs/write-a-provider.md', import.meta.url), 'utf8');
  expect(page).toContain(`\`\`\`ts\n${source}\`\`\`\n`);
});
