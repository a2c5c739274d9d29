import { expect, it } from '@jest/globals';
import { readFileSync } from 'node:fs';

// Plain JavaScript without types, as the programs are.
const PAGES: string = '../matrix/pages.mjs';
const MARKDOWN: string = '../../bench/markdown.mjs';

it('the pages name exactly the servers and versions on which the tests have run', async () => {
  const { partsOfPages } = (await import(PAGES)) as { partsOfPages(): Record<string, Record<string, string>> };
  const { withPart } = (await import(MARKDOWN)) as { withPart(text: string, part: string, content: string): string };
  const pages = Object.entries(partsOfPages());
  expect(pages).toHaveLength(2);
  for (const [page, parts] of pages) {
    const text = readFileSync(page, 'utf8');
    for (const [part, content] of Object.entries(parts)) expect(withPart(text, part, content)).toBe(text);
  }
});
