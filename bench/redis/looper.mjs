// A process whose callers acquire one key again and again, for the measurements with several processes.
// The warm-up is long, because without it the compiler took four fifths of the time.
import { candidate } from './candidates.mjs';
import { loop } from '../loads.mjs';
import { lasting } from '../measure.mjs';

const [, , name, port, callers, milliseconds] = process.argv;
const { acquire, stop } = await candidate(name, Number(port));
await loop(acquire, { callers: Number(callers), milliseconds: lasting(2_500) });
process.send('ready');
process.once('message', async () => {
  process.send(await loop(acquire, { callers: Number(callers), milliseconds: Number(milliseconds) }));
  await stop();
  process.disconnect();
});
