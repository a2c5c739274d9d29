import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { DEFAULTS } from '../../lib/core/plan/lock-settings.js';
import { spawnSync } from 'node:child_process';

const root = join(import.meta.dirname, '../..');

/** Generated text between `<!-- name -->` and `<!-- /name -->`, and comments, which readers don't see. */
const GENERATED = /<!-- (?<part>[a-z-]+)(?:: [^\n]*?)? -->\n[^]*?<!-- \/\k<part> -->|<!--[^]*?-->/g;

/** Returns the handwritten lines of a page. */
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

it('the documentation has at most 45,000 handwritten words', () => {
  expect(docs.reduce((sum, { lines }) => sum + wordsIn(lines), 0)).toBeLessThanOrEqual(45_000);
});

it('each page has at most 1,800 handwritten words, and the README at most 750', () => {
  const long = docs
    .filter(({ lines }) => wordsIn(lines) > 1_800)
    .map(({ page, lines }) => `${page}: ${wordsIn(lines)}`);
  expect(long).toEqual([]);
  expect(wordsIn(linesByHand('README.md'))).toBeLessThanOrEqual(750);
});

it('tables have less than a quarter of the handwritten words, and at most 15 words per cell', () => {
  const all = docs.flatMap(({ lines }) => lines);
  expect(wordsIn(all.filter(isTable)) / wordsIn(all)).toBeLessThan(0.25);
  const cells = docs.flatMap(({ page, lines }) =>
    lines.filter(isTable).flatMap((line) => line.split(/(?<!\\)\|/).map((cell) => ({ page, cell }))),
  );
  expect(cells.filter(({ cell }) => wordsIn([cell]) > 15)).toEqual([]);
});

it('the options page lists each default of a class and of a module', () => {
  const page = textOf('reference/options.md');
  const ofClass = /## `@LockDefaults[^#]*/.exec(page)?.[0] ?? '';
  const ofModule = /\n`defaults` accepts[^#]*/.exec(page)?.[0] ?? '';
  for (const name of Object.keys(DEFAULTS)) {
    expect(ofClass).toContain(`\`${name}\``);
    expect(ofModule).toContain(`\`${name}\``);
  }
});

/**
 * Text that the documentation site doesn't evaluate: fences (except for languages with `-vue`), comments, and elements
 * with `v-pre`.
 */
const LITERAL: readonly RegExp[] = [
  /^( *(?:> *)*)(`{3,}|~{3,})(?!.*-vue\b).*\n(?:.*\n)*?\1 {0,3}\2[`~]* *$/gm,
  /<!--.*?-->/gs,
  /^(:{3,}) *v-pre *\n.*?^\1 *$/gms,
  /<(\w+)(?:\s[^>]*)?\sv-pre(?:\s[^>]*)?>.*?<\/\1>/gs,
];

/**
 * Returns the lines with `{{`, even if escaped, which Vue evaluates as an expression. This includes inline code,
 * tables, headings, and indented code.
 */
function evaluated(page: string): string[] {
  const text = LITERAL.reduce((rest, literal) => rest.replace(literal, (part) => part.replace(/[^\n]/g, '')), page);
  return text.split('\n').flatMap((line, index) => (/\\?\{\\?\{/.test(line) ? [`${index + 1}: ${line.trim()}`] : []));
}

const pages = [
  ...['README.md', 'CHANGELOG.md', 'CONTRIBUTING.md', 'SECURITY.md'],
  ...docs.map(({ page }) => join('docs', page)),
];

it('no page contains text that the documentation site evaluates as a Vue expression', () => {
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
])('detects a Vue expression in %j', (page) => {
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
])('detects no Vue expression in %j', (page) => {
  expect(evaluated(page)).toEqual([]);
});

// `npm run docs` checks the links on all other pages.
it('every link on a maintainer page works', () => {
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

// Untyped, because the programs are plain JavaScript.
const LISTS: readonly string[] = ['../mutants/index.mjs', '../mutants/simulated.mjs'];
const [{ MUTANTS }, { SIMULATED }] = (await Promise.all(LISTS.map((list) => import(list)))) as [
  { MUTANTS: readonly Mutant[] },
  { SIMULATED: readonly Mutant[] },
];
const found = SIMULATED.filter(({ seed }) => seed !== undefined);
const missed = SIMULATED.filter(({ seed }) => seed === undefined);

it('the pages state how many planted faults the simulation finds', () => {
  expect(textOf('trust.md')).toContain(`finds ${found.length} of the ${SIMULATED.length} faults`);
  expect(textOf('reliability.md')).toContain(`plants ${MUTANTS.length} faults`);
  expect(textOf('reliability.md')).toContain(`finds ${found.length} of the ${SIMULATED.length} `);
});

it('the reliability page lists each fault that the simulation does not find', () => {
  const page = textOf('reliability.md');
  const [, list = ''] = /that the simulation can't:\n\n((?:- .*\n)+)/.exec(page) ?? [];
  const named = Array.from(list.matchAll(/`([a-z-]+)`(?=:| and)/g), ([, id]) => id);
  expect(named.sort()).toEqual(missed.map(({ id }) => id).sort());
});

// Runs in a separate process, because each mistake boots Nest applications, and Nest's log is global.
it('each mistake without a server produces the documented message with its place, value, and remedy, and each option has one', () => {
  const args = ['--import', './chaos/typescript.mjs', 'mistakes/run.mjs', '--check', 'alone'];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { cwd: root, encoding: 'utf8' });
  expect([status, stderr, stdout]).toEqual([0, '', expect.stringMatching(/^(\d+) of \1 messages/)]);
}, 120_000);
