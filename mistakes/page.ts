import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { withPart } from '../bench/markdown.mjs';
import { type Group, type Mistake, type Named, PARTS } from './mistake.js';
import type { GroupResult, Result } from './results.js';

const root = join(import.meta.dirname, '..');

/** The page with the tables. */
export const PAGE = join(root, 'maintainers/lab-notes/mistakes.md');

/** The part of the page that needs no servers, and the part that does. */
export type PagePart = 'mistakes' | 'mistakes on servers';

/** The page with one part updated. */
export function drawn(page: string, part: PagePart, groups: readonly GroupResult[]): string {
  return withPart(page, part, groups.map(section).join('\n\n'));
}

function section({ title, results }: GroupResult): string {
  const rows = results.map((result) => `|${cells(result).join('|')}|`);
  return [`### ${title}`, '', '|what the user wrote|message|grade|', '|---|---|---|', ...rows].join('\n');
}

function cells({ mistake, message, missing }: Result): string[] {
  const reasons = PARTS.flatMap((part) => reasonOf(part, mistake[part]));
  const lacks = missing.length === 0 ? [] : [`lacks ${missing.join(', ')}`];
  return [code(written(mistake)), code(message), [`${PARTS.length - missing.length}`, ...lacks, ...reasons].join('. ')];
}

function reasonOf(part: string, named: Named): string[] {
  return typeof named === 'object' && 'because' in named ? [`No ${part}: ${named.because}`] : [];
}

/** What the user wrote, with the module if that matters. */
function written({ how, code: text, call = '', module = '', env = {} }: Mistake): string {
  const variables = Object.entries(env).map(([name, value]) => `${name}=${value}`);
  const statement = how === 'provider' || how === 'module' ? text : [text, call].filter(Boolean).join(' ');
  return [...variables, statement, ...(module === '' ? [] : [`with forRoot(${module})`])].join(' ');
}

/** Formats code on one line between double backticks, because messages contain single ones. */
function code(text: string): string {
  return `\`\` ${text.replaceAll(/\s+/g, ' ').trim().replaceAll('|', '\\|')} \`\``;
}

const OPTIONS_PAGE = join(root, 'docs/reference/options.md');

/**
 * All options of the package, such as `LockOptions.wait`, according to the reference, whose tables are generated from
 * the types. A table without types belongs to the first provider that the text above it names.
 */
function allOptions(): string[] {
  const options: string[] = [];
  let owners: string[] = [];
  let isBelowHead = false;
  for (const line of readFileSync(OPTIONS_PAGE, 'utf8').split('\n')) {
    if (line.startsWith('## ')) [owners, isBelowHead] = [[], false];
    const [, types] = /^<!-- options: (.+) -->$/.exec(line) ?? [];
    if (types !== undefined) owners = types.split(', ');
    else if (line === '<!-- /options -->') owners = [];
    else if (line.startsWith('|option|')) isBelowHead = true;
    else if (!line.startsWith('|')) {
      isBelowHead = false;
      const [provider] = /\b(?!Lock\b)\w+Provider\b/.exec(line) ?? [];
      if (owners.length === 0 && provider !== undefined) owners = [provider];
    }
    const [, option] = (isBelowHead && /^\|`(\w+)`\|/.exec(line)) || [];
    if (option !== undefined) options.push(`${owners.join('|')}.${option}`);
  }
  return options;
}

/** The options that no mistake covers, and the options that mistakes name but that don't exist. */
function uncovered(mistakes: readonly Mistake[]): { missing: string[]; unknown: string[] } {
  const named = mistakes.flatMap(({ of = [] }) => of);
  const all = allOptions();
  const isNamed = (option: string) => alternatives(option).some((each) => named.includes(each));
  const known = new Set(all.flatMap(alternatives));
  return { missing: all.filter((option) => !isNamed(option)), unknown: named.filter((option) => !known.has(option)) };
}

/** The possible owners of an option, because a table for several types doesn't say which one it belongs to. */
function alternatives(option: string): string[] {
  const [owners = '', name] = option.split('.');
  return owners.split('|').map((owner) => `${owner}.${name ?? ''}`);
}

/** Problems with the rows themselves. */
export function problemsOf(groups: readonly Group[]): string[] {
  const mistakes = groups.flatMap((group) => group.mistakes);
  const { missing, unknown } = uncovered(mistakes);
  const ids = mistakes.map(({ id }) => id);
  return [
    ...missing.map((option) => `No mistake covers the option ${option}: add a row to mistakes/rows.`),
    ...unknown.map((option) => `A mistake names the option ${option}, which does not exist: correct its row.`),
    ...ids.filter((id, index) => ids.indexOf(id) !== index).map((id) => `Two mistakes have the id ${id}: rename one.`),
  ];
}
