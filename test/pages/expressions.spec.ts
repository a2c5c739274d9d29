import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const root = join(import.meta.dirname, '../..');

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

const docs = readdirSync(join(root, 'docs'), { recursive: true, encoding: 'utf8' });
const pages = [
  ...['README.md', 'CHANGELOG.md', 'CONTRIBUTING.md', 'SECURITY.md'],
  ...docs.filter((page) => page.endsWith('.md')).map((page) => join('docs', page)),
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
