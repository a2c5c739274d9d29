// A candidate's process: runs loads on the candidate, and sends back what they measure.
import { setTimeout as sleep } from 'node:timers/promises';
import * as loads from './loads.mjs';

process.on('disconnect', () => process.exit());
const [, , module, name, args] = process.argv;
const { candidate } = await import(module);
const { acquire } = await candidate(name, ...JSON.parse(args));
process.on('message', async (load) => {
  // The parent process runs on the same core, and must be asleep before a load of less than a millisecond starts.
  await sleep(5);
  // `send` rejects undefined, and some loads measure nothing.
  process.send((await loads[load.name](acquire, ...load.args)) ?? 'done');
});
process.send('ready');
