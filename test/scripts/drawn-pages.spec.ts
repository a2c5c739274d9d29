import { readFileSync } from 'node:fs';

// Plain JavaScript without types, as the programs are.
const MARKDOWN: string = '../../bench/markdown.mjs';

it.each<[results: string, program: string]>([
  ['servers', '../matrix/pages.mjs'],
  ['chaos', '../../chaos/pages.mjs'],
  ['benchmarks', '../../bench/pages.mjs'],
  ['comparisons', '../../bench/behavior/pages.mjs'],
])('the pages show exactly the results that were kept: %s', async (_, program) => {
  const { partsOfPages } = (await import(program)) as { partsOfPages(): Record<string, Record<string, string>> };
  const { withPart } = (await import(MARKDOWN)) as { withPart(text: string, part: string, content: string): string };
  const pages = Object.entries(partsOfPages());
  expect(pages).not.toEqual([]);
  for (const [page, parts] of pages) {
    const text = readFileSync(page, 'utf8');
    for (const [part, content] of Object.entries(parts)) expect(withPart(text, part, content)).toBe(text);
  }
});
