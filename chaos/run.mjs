import { rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { ensureBuilt } from '../scripts/build.mjs';
import { commandLine, refuse } from '../scripts/command-line.mjs';
import { ensureInstalled, root } from '../scripts/ensure-installed.mjs';
import { ensureServers } from '../scripts/ensure-servers.mjs';
import { campaign } from './campaign.mjs';
import { headOf, judge } from './judge/read-history.mjs';
import { findings, isAsExpected, table } from './report.mjs';
import { soak } from './soak.mjs';
import { subjects } from './subjects/index.mjs';

const USAGE = `usage: npm run chaos [-- options]

  --provider redis       what to prove; may be repeated. Default: everything. There are:
                         ${Object.keys(subjects).join(', ')}
  --fault "worker paused" only this fault; may be repeated
  --minutes 10           for each provider. Default 1
  --seed 7               decides faults and choices. Default: a new one
  --no-control           without the two locks that must be found guilty
  --soak                 moderate load without faults: what must stay flat does
  --judge history.jsonl  judges a history again, as what it is one of
  --library dist         a build that is there already`;

const { values: options } = commandLine(USAGE, {
  options: {
    provider: { type: 'string', multiple: true },
    fault: { type: 'string', multiple: true },
    minutes: { type: 'string', default: '1' },
    seed: { type: 'string', default: String(Math.floor(Math.random() * 1_000_000)) },
    'no-control': { type: 'boolean', default: false },
    soak: { type: 'boolean', default: false },
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
  const { nemeses } = subjects[name];
  const missing = options.fault?.find((fault) => !nemeses.includes(fault));
  if (missing) refuse(`${name} has no fault "${missing}". There are: ${nemeses.join(', ')}`);
}

if (options.judge) {
  const { subject = options.provider?.[0] } = await headOf(options.judge);
  if (!(subject in subjects)) refuse(`What ${options.judge} is a history of is for --provider to say.`);
  process.exit(report(await judged(subject, options.judge)) ? 0 : 1);
}
// Servers end with this process, if it is let end by itself.
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1));
if (!options.library) {
  ensureInstalled();
  ensureServers();
  ensureBuilt();
}
const library = options.library ?? join(root, 'dist');
const { seed } = options;
console.log(`seed ${seed}\n`);

const CONTROL = 8_000;
/** A control is guilty of what it does at some moments: a run of seconds may miss all of them. */
const TRIALS = 5;
let asExpected = true;
for (const name of providers) {
  const terms = { seed, milliseconds, library, only: options.fault };
  if (options.soak) asExpected = (await soak(name, terms)) && asExpected;
  else
    asExpected = report(await (controls.includes(name) ? convict(name, terms) : campaign(name, terms))) && asExpected;
}
// A harness that finds nothing anywhere proves nothing.
if (!options['no-control'] && !options.soak) {
  for (const name of controls.filter((each) => !providers.includes(each))) {
    asExpected = report(await convict(name, { seed, milliseconds: CONTROL, library })) && asExpected;
  }
}
process.exit(asExpected ? 0 : 1);

async function convict(name, terms) {
  for (let trial = 1; ; trial += 1) {
    const result = await campaign(name, { ...terms, seed: `${terms.seed}-${trial}` });
    if (trial === TRIALS || isAsExpected(result)) return result;
    await rm(dirname(result.history), { recursive: true });
  }
}

async function judged(name, history) {
  return { subject: subjects[name], name, history, verdict: await judge(history, subjects[name]) };
}

function report(result) {
  console.log(`${table(result)}\n`);
  for (const finding of findings(result)) console.log(`- ${finding}`);
  const { subject, history, verdict } = result;
  const ok = isAsExpected(result);
  if (subject.control)
    console.log(ok ? '\nFound guilty, as it must be.\n' : '\nNOT FOUND OUT: this run proves nothing.\n');
  else if (ok) console.log('No violation.\n');
  else if (verdict.violations.length === 0) console.log('Too few sections to say anything.\n');
  if (!ok) console.log(`The history is kept: ${history}\n`);
  return ok;
}
