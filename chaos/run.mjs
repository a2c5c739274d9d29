import { join } from 'node:path';
import { readdirSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { build } from '../scripts/build.mjs';
import { ensureInstalled, root } from '../scripts/ensure-installed.mjs';
import { ensureServers } from '../scripts/ensure-servers.mjs';
import { campaign } from './campaign.mjs';
import { findings, table } from './report.mjs';

const usage = `usage: npm run chaos [-- --provider redis --minutes 10 --seed 7 --fault "worker paused"]`;
const { values } = parseArgs({
  options: {
    provider: { type: 'string', multiple: true },
    fault: { type: 'string', multiple: true },
    minutes: { type: 'string', default: '1' },
    seed: { type: 'string', default: String(Date.now() % 1_000_000) },
    // A build that is there already.
    library: { type: 'string' },
  },
});
const { seed } = values;
const milliseconds = Number(values.minutes) * 60_000;
const CONTROL = 6_000;

if (!values.library) {
  ensureInstalled();
  ensureServers();
  build();
}
const library = values.library ?? join(root, 'dist');
console.log(`seed ${seed}\n`);
let failed = false;

for (const name of values.provider ?? ['redis', 'naive', 'redlock-package']) {
  const result = await campaign(name, { seed, milliseconds, library, only: values.fault });
  console.log(`${table(result)}\n`);
  console.log(JSON.stringify(result.verdict.counts));
  for (const finding of findings(result)) console.log(`- ${finding}`);
}
