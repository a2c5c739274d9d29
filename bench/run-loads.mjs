// The process of a candidate: runs loads on it when it is told to, and answers what they measure.
import * as loads from './loads.mjs';

const [, , module, name, args] = process.argv;
const { candidate } = await import(module);
const { acquire } = await candidate(name, ...JSON.parse(args));
process.on('message', async (load) => {
  // Without an answer the message of a load that measures nothing would be empty.
  process.send((await loads[load.name](acquire, ...load.args)) ?? 'done');
});
process.on('disconnect', () => process.exit());
process.send('ready');
