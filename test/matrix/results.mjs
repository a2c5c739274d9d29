// The newest result of each row, kept in results.json.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { markdownTable } from '../../bench/markdown.mjs';
import { ROWS } from './rows.mjs';

const FILE = join(import.meta.dirname, 'results.json');

/** In the order of the rows. */
export function keptResults() {
  const kept = existsSync(FILE) ? JSON.parse(readFileSync(FILE, 'utf8')) : [];
  return ROWS.flatMap(({ name }) => kept.find((result) => result.row === name) ?? []);
}

/** Keeps a result in place of an earlier one, and answers it. */
export function keep(result) {
  const others = keptResults().filter(({ row }) => row !== result.row);
  writeFileSync(FILE, `${JSON.stringify([...others, result], null, 2)}\n`);
  return result;
}

export function tableOf(results) {
  return markdownTable(
    ['server', 'version', 'test files', 'passed', 'failed', 'skipped', 'commit', 'date'],
    results.map((result) => {
      const { server, version, refused, specs, passed, failed, commit, date } = result;
      const counts = refused === undefined ? [specs, passed, failed, skippedOf(result)] : ['refused', '', failed, ''];
      return [server, version, ...counts, commit, date];
    }),
  );
}

/** How many tests were not run; the reasons stand below the table. */
function skippedOf({ skipped }) {
  return Object.values(skipped).reduce((total, count) => total + count, 0);
}
