import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const root = join(import.meta.dirname, '../..');

/** What a program writes between `<!-- name -->` and `<!-- /name -->`, and comments, which readers do not see. */
const GENERATED = /<!-- (?<part>[a-z-]+)(?:: [^\n]*?)? -->\n[^]*?<!-- \/\k<part> -->|<!--[^]*?-->/g;

/** The lines of a page that are written by hand. */
function linesByHand(page: string): string[] {
  return readFileSync(join(root, page), 'utf8').replace(GENERATED, '').split('\n');
}

const isTable = (line: string) => line.startsWith('|') && !/^[|:\- ]*$/.test(line);
const wordsIn = (lines: readonly string[]) =>
  lines.flatMap((line) => (line.startsWith('|') ? line.replaceAll('|', ' ') : line).split(/\s+/).filter(Boolean))
    .length;

const docs = readdirSync(join(root, 'docs'), { recursive: true, encoding: 'utf8' })
  .filter((page) => page.endsWith('.md'))
  .map((page) => ({ page, lines: linesByHand(join('docs', page)) }));

it('the documentation has at most 45,000 words that are written by hand', () => {
  expect(docs.reduce((sum, { lines }) => sum + wordsIn(lines), 0)).toBeLessThanOrEqual(45_000);
});

it('each page has at most 1,800 of them, and the README 750', () => {
  const long = docs
    .filter(({ lines }) => wordsIn(lines) > 1_800)
    .map(({ page, lines }) => `${page}: ${wordsIn(lines)}`);
  expect(long).toEqual([]);
  expect(wordsIn(linesByHand('README.md'))).toBeLessThanOrEqual(750);
});

it('less than a quarter of them is in tables, and no cell has more than 15', () => {
  const all = docs.flatMap(({ lines }) => lines);
  expect(wordsIn(all.filter(isTable)) / wordsIn(all)).toBeLessThan(0.25);
  const cells = docs.flatMap(({ page, lines }) =>
    lines.filter(isTable).flatMap((line) => line.split(/(?<!\\)\|/).map((cell) => ({ page, cell }))),
  );
  expect(cells.filter(({ cell }) => wordsIn([cell]) > 15)).toEqual([]);
});
