import { rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { ensureBuilt } from '../scripts/build.mjs';
import { commandLine, refuse } from '../scripts/command-line.mjs';
import { ensureInstalled, root } from '../scripts/ensure-installed.mjs';
import { ensureServers } from '../scripts/ensure-servers.mjs';
import { runWithFaults } from './fault-run.mjs';
import { headOf, judge } from './judge/read-history.mjs';
import { drawPages } from './pages.mjs';
import {
  cycleLines,
  disagreementLines,
  conditionLines,
  faultTable,
  hasEnough,
  isAsExpected,
  soakTable,
  summarize,
  tickLines,
  violationLines,
} from './report.mjs';
import { keep } from './results.mjs';
import { rootOf, ROWS } from '../test/matrix/rows.mjs';
import { soak } from './soak.mjs';
import { subjects } from './subjects/index.mjs';

const USAGE = `usage: npm run chaos [-- options]

  --provider redis        the subject to test; may be repeated. Default: all of
                          ${Object.keys(subjects).join(', ')}
  --server valkey-9.1     the server that npm run test:servers unpacks. Default: this machine's servers
  --fault "worker paused" only this fault; may be repeated
  --minutes 10            how long to test each provider. Default: 1
  --seed 7                determines the faults and the clients' choices. Default: random
  --no-control            skips the controls, which must be found guilty
  --soak                  runs moderate load without faults, and checks that memory and connections don't grow
  --keep                  saves the results in chaos/results and updates docs/trust.md, docs/reliability.md and maintainers/lab-notes/chaos.md
  --judge history.jsonl   judges a recorded history again
  --library dist          uses this build instead of a new one`;

const { values: options } = commandLine(USAGE, {
  options: {
    provider: { type: 'string', multiple: true },
    server: { type: 'string' },
    fault: { type: 'string', multiple: true },
    minutes: { type: 'string', default: '1' },
    seed: { type: 'string', default: String(Math.floor(Math.random() * 1_000_000)) },
    'no-control': { type: 'boolean', default: false },
    soak: { type: 'boolean', default: false },
    keep: { type: 'boolean', default: false },
    judge: { type: 'string' },
    library: { type: 'string' },
  },
});
const controls = Object.keys(subjects).filter((name) => subjects[name].control);
const providers = options.provider ?? Object.keys(subjects).filter((name) => !controls.includes(name));
const unknown = providers.filter((name) => !(name in subjects));
const milliseconds = Number(options.minutes) * 60_000;
if (unknown.length > 0 || !(milliseconds > 0)) refuse(USAGE);
for (const name of providers) {
  const { faults } = subjects[name];
  const missing = options.fault?.find((fault) => !faults.includes(fault));
  if (missing) refuse(`${name} has no fault "${missing}". Use one of: ${faults.join(', ')}`);
}
if (options.keep && options.fault) refuse('--keep requires all faults. Remove --fault.');

if (options.judge) {
  const { subject: name = options.provider?.[0] } = await headOf(options.judge);
  if (!(name in subjects)) refuse(`${options.judge} does not name its subject. Name it with --provider.`);
  const subject = subjects[name];
  const verdict = await judge(options.judge, subject);
  process.exit(print({ name, subject, history: options.judge, verdict }) ? 0 : 1);
}
// The servers stop only when this process exits normally.
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1));
if (!options.library) {
  ensureInstalled();
  ensureServers();
  ensureBuilt();
}
const row = options.server && ROWS.find(({ name }) => name === options.server);
if (options.server && !row) refuse(`There is no server ${options.server}.`);
const other = row && (await rootOf(row));
if (other) process.env.LOCK_TEST_ROOT = other.folder;
const library = options.library ?? join(root, 'dist');
const { seed } = options;
console.log(`seed ${seed}\n`);

const CONTROL_MILLISECONDS = 8_000;
/** A control breaks its rules only at certain moments, and a short run may miss them all. */
const CONTROL_RUNS = 5;
let asExpected = true;
for (const name of providers) {
  const settings = { seed, milliseconds, library, only: options.fault };
  const ok = options.soak ? await soaked(name, settings) : await tested(name, settings);
  asExpected &&= ok;
}
// A test that never finds a violation proves nothing.
if (!options['no-control'] && !options.soak) {
  for (const name of controls.filter((each) => !providers.includes(each))) {
    const ok = await tested(name, { seed, milliseconds: CONTROL_MILLISECONDS, library });
    asExpected &&= ok;
  }
}
if (options.keep) drawPages();
process.exit(asExpected ? 0 : 1);

/** Runs a subject with faults, prints the result, and returns whether it is as expected. */
async function tested(name, settings) {
  const result = await (controls.includes(name) ? runControl(name, settings) : runWithFaults(name, settings));
  if (options.keep) {
    const { title } = result.subject;
    const server = other && { row: row.name, name: `${row.server} ${other.version}` };
    keep('faults', {
      subject: name,
      title,
      server,
      seed,
      milliseconds: settings.milliseconds,
      ...(result.verdict.conditions && { conditions: result.verdict.conditions }),
      ...summarize(result.verdict),
    });
  }
  return print(result);
}

async function runControl(name, settings) {
  for (let run = 1; ; run += 1) {
    const result = await runWithFaults(name, { ...settings, seed: `${settings.seed}-${run}` });
    if (run === CONTROL_RUNS || isAsExpected(result)) return result;
    await rm(dirname(result.history), { recursive: true });
  }
}

function print(result) {
  const { subject, history, verdict } = result;
  console.log(`### ${subject.title}\n\n${faultTable(summarize(verdict))}\n`);
  for (const line of [
    ...conditionLines(verdict),
    ...tickLines(verdict),
    ...cycleLines(verdict),
    ...disagreementLines(verdict),
    ...violationLines(verdict),
  ])
    console.log(`- ${line}`);
  const ok = isAsExpected(result);
  if (subject.control)
    console.log(ok ? '\nFound guilty, as expected.\n' : '\nNOT FOUND GUILTY: this run proves nothing.\n');
  else if (ok) console.log('No violation.\n');
  else if (verdict.violations.length === 0) console.log('Too few sections for a verdict.\n');
  if (!hasEnough(verdict)) console.log(`Last failure: ${verdict.lastFailure ?? 'none'}\n`);
  if (!ok) console.log(`The history is kept: ${history}\n`);
  return ok;
}

/** Soaks a subject, prints the result, and returns whether nothing grows. */
async function soaked(name, settings) {
  const { subject, verdict, history, rows, isFlat } = await soak(name, settings);
  const { sections } = verdict.counts;
  console.log(`### ${subject.title}, ${sections} sections in ${options.minutes} min\n\n${soakTable({ rows })}`);
  for (const line of [...conditionLines(verdict), ...violationLines(verdict)]) console.log(`- ${line}`);
  if (!isFlat) console.log(`\nThe history is kept: ${history}`);
  console.log();
  if (options.keep) keep('soak', { subject: name, title: subject.title, seed, milliseconds, sections, rows });
  return isFlat;
}
