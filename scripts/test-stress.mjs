import { commandLine, refuse } from './command-line.mjs';
import { ensureInstalled } from './ensure-installed.mjs';
import { ensureServers } from './ensure-servers.mjs';
import { JestRun } from './jest.mjs';
import { startLoad } from './load.mjs';

const USAGE = `usage: npm run test:stress -- [options] path …

Runs these tests repeatedly while every core of the machine is busy, to check whether they are stable.

  --times 20    how many times
  --name "…"    runs only the tests whose names match`;

const { values: options, positionals: paths } = commandLine(USAGE, {
  options: { times: { type: 'string', default: '20' }, name: { type: 'string' } },
  allowPositionals: true,
});
const times = Number(options.times);
if (paths.length === 0 || !(times >= 1)) refuse(USAGE);

ensureInstalled();
ensureServers();
const args = options.name ? [...paths, '--testNamePattern', options.name] : paths;
const stopLoad = startLoad();
const run = new JestRun();
let green = 0;
for (let round = 1; round <= times; round += 1) {
  const { files, seconds } = await run.jest(args, { silent: true });
  const red = files.filter(({ failed }) => failed > 0);
  const isGreen = red.length === 0 && files.some(({ passed }) => passed > 0);
  if (isGreen) green += 1;
  console.log(`${String(round).padStart(3)}  ${isGreen ? 'green' : 'RED'}  ${seconds.toFixed(1)} s`);
  for (const { file, error } of red) console.log(`\n${file}: ${error}\n`);
}
stopLoad();
const leftBehind = await run.end();
for (const each of leftBehind) console.log(`left behind: ${each}`);
console.log(`${green} of ${times} green`);
process.exit(green === times && leftBehind.length === 0 ? 0 : 1);
