import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { ensureBuilt } from '../../scripts/build.mjs';
import { commandLine, refuse } from '../../scripts/command-line.mjs';
import { commit } from '../../scripts/commit.mjs';
import { codeOf, hashOf } from '../../scripts/measured-code.mjs';
import { ensureInstalled } from '../../scripts/ensure-installed.mjs';
import { ensureServers } from '../../scripts/ensure-servers.mjs';
import { installedNode } from '../../scripts/installed-node.mjs';
import { counted, JestRun } from '../../scripts/jest.mjs';
import { ArchiveError } from './debian.mjs';
import { drawPages, keep, tableOf } from './pages.mjs';
import { rootOf, ROWS } from './rows.mjs';

const USAGE = `usage: npm run test:servers -- [row …]

Runs the conformance kit and the tests of a provider on other versions of its server, and the tests that need no server on other
versions of Node.js. Debian's archive has the servers; they are unpacked into .cache/servers, and nothing is installed.

  row   only these. Default: all of
        ${ROWS.map(({ name }) => name).join(', ')}`;

const run = promisify(execFile);
// The tests mostly wait.
const WORKERS = 3;

const { positionals: names } = commandLine(USAGE, { options: {}, allowPositionals: true });
const unknown = names.filter((name) => !ROWS.some((row) => row.name === name));
if (unknown.length > 0) refuse(`There is no row ${unknown.join(', ')}.\n\n${USAGE}`);

ensureInstalled();
// A server's tests also need a compiler, Java, and servers of other kinds.
ensureServers();
ensureBuilt();
const results = [];
try {
  for (const row of ROWS.filter(({ name }) => names.length === 0 || names.includes(name))) {
    const result = row.server === 'Node.js' ? await onNode(row) : await onServer(row);
    results.push(
      keep({
        ...result,
        commit: commit('lib', 'test', ':!test/matrix/results.json'),
        measured: hashOf(codeOf(row.name)),
        date: new Date().toISOString().slice(0, 10),
      }),
    );
  }
} catch (error) {
  if (!(error instanceof ArchiveError)) throw error;
  console.error(`${error.message}\nThe remaining rows were not run.`);
  process.exitCode = 1;
}
console.log(`\n${tableOf(results)}`);
drawPages();
if (results.some(({ failed }) => failed > 0)) process.exitCode = 1;

async function onServer(row) {
  const { folder, version } = await rootOf(row);
  console.log(`\n${row.server} ${version} (${row.suite})`);
  const env = { LOCK_TEST_ROOT: folder };
  const about = { row: row.name, server: row.server, version };
  if (row.refused === undefined) return { ...about, ...(await tests(row, { env })) };
  const script = join(import.meta.dirname, 'refusal.mjs');
  try {
    const { stdout } = await run(process.execPath, [script, row.refused], { env: { ...process.env, ...env } });
    return { ...about, refused: stdout.trim(), failed: 0 };
  } catch (error) {
    console.error(error.stderr);
    return { ...about, refused: 'no', failed: 1 };
  }
}

async function onNode(row) {
  const { file, version } = installedNode(row.version);
  console.log(`\nNode.js ${version}`);
  return { row: row.name, server: row.server, version, ...(await tests(row, { node: file })) };
}

/** Runs Jest once per row, because a server can't use the data folders created by another version. */
async function tests({ specs, without, leftOut }, options) {
  const jest = new JestRun();
  const terms = { ...options, without, leftOut, workers: WORKERS };
  const first = await jest.jest(['--testPathPatterns', ...specs], terms);
  const files = await jest.repeatFailed(first.files, terms);
  const leftBehind = await jest.end();
  for (const each of leftBehind) console.log(`left behind: ${each}`);
  for (const { file, error } of files.filter(({ failed }) => failed > 0)) console.log(`${file}: ${error}\n`);
  const sum = (field) => files.reduce((total, file) => total + file[field], 0);
  const ran = files.filter(({ passed, failed }) => passed + failed > 0);
  return {
    specs: ran.length,
    passed: sum('passed'),
    failed: sum('failed') + leftBehind.length,
    skipped: Object.fromEntries(counted(files.flatMap(({ skipped }) => skipped))),
  };
}
