import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { commandLine } from './command-line.mjs';
import { root } from './ensure-installed.mjs';
import { codeOf, codeOfSubject, hashOf } from './measured-code.mjs';

const USAGE = `npm run check:results [-- --grace <days>]

Lists the results on the pages that are older than the code they describe, with the command that updates each of them.
Fails if one of them is more than this many days old. Default: 1. Use --grace 0 for a release.`;

const { values } = commandLine(USAGE, { options: { grace: { type: 'string', default: '1' } } });
const DAY = 86_400_000;

const results = [
  ...resultsIn('chaos/results').map(({ subject, server, minutes, rows, ...result }) => ({
    ...result,
    name: `${rows ? 'soak' : 'chaos'} of ${subject}${server === undefined ? '' : ` on ${server}`}`,
    code: codeOfSubject(subject),
    command: `chaos -- --provider ${subject} --minutes ${Math.round(minutes)} ${rows ? '--soak ' : ''}--keep`,
  })),
  ...['bench/results', 'bench/results/node-24'].flatMap((folder) =>
    resultsIn(folder).map(({ group, ...result }) => ({
      ...result,
      name: `${folder}/${group}`,
      code: codeOf(group),
      command: `bench -- ${folder.endsWith('24') ? '--node 24 ' : ''}${group}`,
    })),
  ),
  ...JSON.parse(readFileSync(join(root, 'test/matrix/results.json'), 'utf8')).map(({ row, ...result }) => ({
    ...result,
    name: `tests on ${row}`,
    code: codeOf(row),
    command: `test:servers -- ${row}`,
  })),
];
const stale = results.filter(({ code, measured }) => measured !== hashOf(code));
const overdue = stale.filter(({ date }) => Date.now() - Date.parse(date) > Number(values.grace) * DAY);
for (const { name, date, commit, command } of stale) {
  console.log(`${name}: the code has changed since ${commit} (${date.slice(0, 10)}): npm run ${command}`);
}
console.log(`${results.length} results, ${stale.length} older than their code, ${overdue.length} for too long.`);
process.exit(overdue.length === 0 ? 0 : 1);

function resultsIn(folder) {
  return readdirSync(join(root, folder))
    .filter((file) => file.endsWith('.json'))
    .map((file) => JSON.parse(readFileSync(join(root, folder, file), 'utf8')));
}
