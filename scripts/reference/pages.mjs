import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from '../ensure-installed.mjs';
import { capabilityTable } from './capabilities.mjs';
import { caseList } from './cases.mjs';
import { commandHelp } from './commands.mjs';
import { errorSections } from './errors.mjs';
import { eventSections } from './events.mjs';
import { commentsOf, fieldList } from './fields.mjs';
import { metricTable } from './metrics.mjs';
import { optionsTable, optionsWithoutTable } from './options.mjs';

/** The generated parts of pages, by the names of their markers: `<!-- fields: LockEvent -->` … `<!-- /fields -->`. */
const PARTS = {
  capabilities: capabilityTable,
  cases: caseList,
  commands: commandHelp,
  comment: commentsOf,
  errors: errorSections,
  events: eventSections,
  fields: fieldList,
  metrics: metricTable,
  options: optionsTable,
};
const PART = new RegExp(
  `(?<begin><!-- (?<part>${Object.keys(PARTS).join('|')})(?:: (?<types>.+?))? -->\\n)[^]*?(?<end><!-- /\\k<part> -->)`,
  'g',
);

/**
 * The pages whose generated parts differ from the code, with the text that they should have. @throws if a page explains
 * no table of some options
 */
export function stalePages() {
  const shown = new Set();
  const stale = [];
  for (const file of readdirSync(join(root, 'docs'), { recursive: true }).filter((name) => name.endsWith('.md'))) {
    const page = join('docs', file);
    const before = readFileSync(join(root, page), 'utf8');
    const text = before.replace(PART, (...args) => {
      const { begin, part, types = '', end } = args.at(-1);
      const names = types.split(', ');
      if (part === 'options') for (const name of names) shown.add(name);
      return `${begin}${PARTS[part](names)}\n${end}`;
    });
    if (text !== before) stale.push({ page, text });
  }
  const missing = optionsWithoutTable(shown);
  if (missing.length > 0) throw new Error(`No page has a table of ${missing.join(', ')}.`);
  return stale;
}
