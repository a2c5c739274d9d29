import { rmSync } from 'node:fs';
import { Session } from 'node:inspector';
import { dirname, join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { ensureBuilt } from './build.mjs';
import { commandLine, refuse } from './command-line.mjs';
import { root } from './ensure-installed.mjs';
import { instrument } from './walk/instrument.mjs';
import { PATHS } from './walk/paths.mjs';

const { values, positionals } = commandLine(
  `npm run walk -- [--build <folder>] [--list] [path …]

Traces a path of a user's call through the code of this build, or of another one: ${Object.keys(PATHS).join(', ')}.
  functions  entered, without accessors
  files      that contain these functions
  stays      consecutive calls in one file, without core/toolkit
  returns    stays in a file that it had left before
  again      calls to a file from another file while it is on the stack
  --list     also prints the stays`,
  { options: { build: { type: 'string' }, list: { type: 'boolean' } }, allowPositionals: true },
);
const unknown = positionals.find((name) => !Object.hasOwn(PATHS, name));
if (unknown !== undefined) refuse(`There is no path "${unknown}". Use one of: ${Object.keys(PATHS).join(', ')}.`);

if (values.build === undefined) ensureBuilt();
const copy = join(root, `.cache/walk-${process.pid}/dist`);
instrument(join(resolve(values.build ?? root), 'dist'), copy);
const folder = pathToFileURL(`${copy}/`).href;
const build = await load();
Error.stackTraceLimit = Infinity;

console.log('|path|functions|files|stays|returns|again|\n|---|---|---|---|---|---|');
for (const name of positionals.length > 0 ? positionals : Object.keys(PATHS)) {
  await PATHS[name](build, (run, part) => walk(name, run, part));
}
rmSync(dirname(copy), { recursive: true });

async function load() {
  const entries = [
    'index',
    ...['redis', 'redlock', 'sql', 'zookeeper', 'memcached'].map((each) => `providers/${each}/index`),
  ];
  const modules = await Promise.all(entries.map((entry) => import(`${folder}${entry}.js`)));
  return Object.assign({}, ...modules);
}

/** @param part the part of the sequence of calls that counts: from which call, and until which moment */
async function walk(path, run, { from, until } = {}) {
  const calls = [];
  let isOver = false;
  until?.(() => {
    isOver = true;
  });
  const coverage = startCoverage();
  globalThis.walked = (file, name) => {
    if (isOver) return;
    calls.push({ file, name, isAgain: isCalledAgain(file, new Error().stack) });
  };
  const result = await run();
  globalThis.walked = undefined;
  const entered = coverage();
  await result?.release?.();
  const counted = from === undefined ? calls : calls.slice(lastBefore(calls, from));
  const stays = [];
  for (const { file, name } of counted) {
    if (file.startsWith('core/toolkit/')) continue;
    if (stays.at(-1)?.file === file) stays.at(-1).names.push(name);
    else stays.push({ file, names: [name] });
  }
  const files = new Set(stays.map(({ file }) => file));
  const again = counted.filter(({ isAgain }) => isAgain);
  const functions = from === undefined ? entered.length : counted.length;
  const filesEntered = from === undefined ? new Set(entered).size : files.size;
  console.log(`|${path}|${functions}|${filesEntered}|${stays.length}|${stays.length - files.size}|${again.length}|`);
  if (!values.list) return;
  for (const { file, names } of stays) console.log(`  ${file}: ${names.join(', ')}`);
  for (const { file, name } of again) console.log(`  again: ${file} ${name}`);
}

/** The index after the last call outside this folder. */
function lastBefore(calls, from) {
  return calls.findLastIndex(({ file }) => !file.startsWith(from) && !file.startsWith('core/toolkit/')) + 1;
}

/**
 * Whether another of our files called this one while it was already on the stack. Toolkit files count as part of their
 * callers.
 */
function isCalledAgain(file, stack) {
  if (file.startsWith('core/toolkit/')) return false;
  const frames = Array.from(stack.matchAll(/^ {4}at (?!async)[^\n]*?(file:[^\n)]*?):\d+:\d+\)?$/gm), ([, url]) => url)
    .filter((url) => url.startsWith(folder) && !url.includes('/core/toolkit/'))
    .map((url) => url.slice(folder.length));
  // The first frame is the call itself.
  const caller = frames[1];
  return caller !== undefined && caller !== file && frames.indexOf(file, 2) !== -1;
}

/**
 * Counts with precise coverage, which also sees single-expression arrow functions. Its results arrive before `post`
 * returns.
 */
function startCoverage() {
  const inspector = new Session();
  inspector.connect();
  inspector.post('Profiler.enable');
  inspector.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
  return () => {
    const entered = [];
    inspector.post('Profiler.takePreciseCoverage', (_, { result }) => {
      for (const { url, functions } of result) {
        if (!url.startsWith(folder)) continue;
        for (const { functionName, ranges } of functions) {
          const [{ count, startOffset }] = ranges;
          // A file's first function is its top-level code.
          if (count > 0 && startOffset > 0 && !/^(get|set) |^<\w+_initializer>$/.test(functionName)) entered.push(url);
        }
      }
    });
    inspector.disconnect();
    return entered;
  };
}
