// A process of its own whose callers acquire one key again and again, for the row with two processes.
// Warmed up for long: cold, the compiler took four fifths of the time.
import { candidate } from './candidates.mjs';
import { loop } from '../loads.mjs';
import { lasting } from '../measure.mjs';

const [, , name, port, callers, milliseconds] = process.argv;
const { take, stop } = await candidate(name, Number(port));
await loop(take, { callers: Number(callers), milliseconds: lasting(2_500) });
process.send('ready');
process.once('message', async () => {
  process.send(await loop(take, { callers: Number(callers), milliseconds: Number(milliseconds) }));
  await stop();
  process.disconnect();
});
