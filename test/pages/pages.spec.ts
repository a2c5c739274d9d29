import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { DEFAULTS } from '../../lib/core/plan/lock-settings.js';
import { spawnSync } from 'node:child_process';

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

const textOf = (page: string) => readFileSync(join(root, 'docs', page), 'utf8');
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

it('the page of options names each default of a class, and of a module', () => {
  const page = textOf('reference/options.md');
  const ofClass = /## `@LockDefaults[^#]*/.exec(page)?.[0] ?? '';
  const ofModule = /\n`defaults` accepts[^#]*/.exec(page)?.[0] ?? '';
  for (const name of Object.keys(DEFAULTS)) {
    expect(ofClass).toContain(`\`${name}\``);
    expect(ofModule).toContain(`\`${name}\``);
  }
});

/** What the documentation site does not evaluate: fences (but for those of a language with `-vue`), comments, and elements with `v-pre`. */
const LITERAL: readonly RegExp[] = [
  /^( *(?:> *)*)(`{3,}|~{3,})(?!.*-vue\b).*\n(?:.*\n)*?\1 {0,3}\2[`~]* *$/gm,
  /<!--.*?-->/gs,
  /^(:{3,}) *v-pre *\n.*?^\1 *$/gms,
  /<(\w+)(?:\s[^>]*)?\sv-pre(?:\s[^>]*)?>.*?<\/\1>/gs,
];

/** The lines with `{{`, also by escapes, which Vue takes for an expression. Inline code, tables, headings and indented code are no exceptions. */
function evaluated(page: string): string[] {
  const text = LITERAL.reduce((rest, literal) => rest.replace(literal, (part) => part.replace(/[^\n]/g, '')), page);
  return text.split('\n').flatMap((line, index) => (/\\?\{\\?\{/.test(line) ? [`${index + 1}: ${line.trim()}`] : []));
}

const pages = [
  ...['README.md', 'CHANGELOG.md', 'CONTRIBUTING.md', 'SECURITY.md'],
  ...docs.map(({ page }) => join('docs', page)),
];

it('no page has text that the documentation site evaluates as an expression of Vue', () => {
  expect(pages).toContain(join('docs', 'reference', 'errors.md'));
  const found = pages.flatMap((page) =>
    evaluated(readFileSync(join(root, page), 'utf8')).map((line) => `${page}:${line}`),
  );
  expect(found).toEqual([]);
});

it.each([
  'text {{ a }}',
  'inline `code {{ a }}`, and ``two ` {{ b }}``',
  '|`{{ a }}`|b|',
  '# A heading {{ a }}',
  '[a link {{ a }}](keys.md)',
  '    indented {{ a }}',
  'escaped \\{\\{ a }}',
  '```ts-vue\n{{ a }}\n```',
  '```ts\nconst a = 1;\n```\n{{ a }}',
  '<span>{{ a }}</span>',
  '<span v-pre>b</span> {{ a }}',
])('but the site would evaluate %j', (page) => {
  expect(evaluated(page)).toHaveLength(1);
});

it.each([
  '```ts\nconst a = {{ a }};\n```',
  '~~~\n{{ a }}\n~~~',
  '- a list\n  ```json\n  {{ a }}\n  ```',
  '````md\n```ts\n{{ a }}\n```\n````',
  '::: v-pre\n{{ a }}\n:::',
  '<span v-pre>{{ a }}</span>',
  '<code class="x" v-pre>{{ a }}</code>',
  '<!-- {{ a }} -->',
  '{ { a } }, `${a}`, #{a.b} and &#123;&#123; a }}',
])('and shows %j as it is', (page) => {
  expect(evaluated(page)).toEqual([]);
});

// `npm run docs` checks the links of all other pages.
it('every link on a page for maintainers leads somewhere', () => {
  const folder = join(root, 'maintainers');
  const pages = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((page) => page.endsWith('.md'));
  const links = pages.flatMap((page) =>
    Array.from(readFileSync(join(folder, page), 'utf8').matchAll(/\]\(([^)\s#]+)/g), ([, link = '']) => ({
      page,
      link,
    })),
  );
  expect(links.length).toBeGreaterThan(10);
  const dead = links.filter(
    ({ page, link }) => !/^[a-z]+:/.test(link) && !existsSync(join(folder, dirname(page), link)),
  );
  expect(dead).toEqual([]);
});

interface Mutant {
  readonly id: string;
  readonly seed?: number;
}

// Plain JavaScript without types, as the programs are.
const LISTS: readonly string[] = ['../mutants/index.mjs', '../mutants/simulated.mjs'];
const [{ MUTANTS }, { SIMULATED }] = (await Promise.all(LISTS.map((list) => import(list)))) as [
  { MUTANTS: readonly Mutant[] },
  { SIMULATED: readonly Mutant[] },
];
const found = SIMULATED.filter(({ seed }) => seed !== undefined);
const missed = SIMULATED.filter(({ seed }) => seed === undefined);

it('the pages give the numbers of planted faults that the simulation finds', () => {
  expect(textOf('trust.md')).toContain(`finds ${found.length} of the ${SIMULATED.length} faults`);
  expect(textOf('reliability.md')).toContain(`plants ${MUTANTS.length} faults`);
  expect(textOf('reliability.md')).toContain(`finds ${found.length} of the ${SIMULATED.length} `);
});

it('the page on reliability names each that it does not find', () => {
  const page = textOf('reliability.md');
  const [, list = ''] = /that the simulation can't:\n\n((?:- .*\n)+)/.exec(page) ?? [];
  const named = Array.from(list.matchAll(/`([a-z-]+)`(?=:| and)/g), ([, id]) => id);
  expect(named.sort()).toEqual(missed.map(({ id }) => id).sort());
});

// In a process of their own, because each boots applications of Nest, and the log of Nest belongs to a process.
it('each mistake that needs no server gets a message with place, value and remedy, as the page shows it, and each option has a mistake', () => {
  const args = ['--import', './chaos/typescript.mjs', 'mistakes/run.mjs', '--check', 'alone'];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { cwd: root, encoding: 'utf8' });
  expect([status, stderr, stdout]).toEqual([0, '', expect.stringMatching(/^(\d+) of \1 messages/)]);
}, 120_000);
