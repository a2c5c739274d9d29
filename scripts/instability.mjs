import { appendFileSync, existsSync, mkdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { root } from './ensure-installed.mjs';
import { counted } from './jest.mjs';

/**
 * This checkout's records: one line for each time that a file failed and then passed. `npm ci` preserves them, and Git
 * ignores them.
 */
export const RECORDS = join(root, '.cache/unstable.jsonl');

const DAYS = 31;
const OFTEN = 3;

/**
 * Records that these files were unstable now, and returns a line for each file that was unstable too often in the last
 * month.
 */
export function recordUnstable(files, records) {
  mkdirSync(dirname(records), { recursive: true });
  const now = Date.now();
  for (const file of files) appendFileSync(records, `${JSON.stringify({ at: new Date(now), file })}\n`);
  if (!existsSync(records)) return [];
  const recent = readFileSync(records, 'utf8')
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line))
    .filter(({ at }) => now - Date.parse(at) < DAYS * 86_400_000);
  return [...counted(recent.map(({ file }) => file))]
    .filter(([, times]) => times >= OFTEN)
    .map(([file, times]) => `unstable ${times} times in ${DAYS} days: ${file}`);
}
