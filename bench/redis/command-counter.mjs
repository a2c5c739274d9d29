// Counts the commands that a server receives. Runs in its own process, because counting takes CPU time. Commands inside
// scripts don't count.
import { once } from 'node:events';
import { connect } from 'node:net';
import { createInterface } from 'node:readline';

const monitor = connect(Number(process.argv[2]), '127.0.0.1');
monitor.write('MONITOR\r\n');
await once(monitor, 'data');
let count = 0;
createInterface({ input: monitor }).on('line', (line) => (count += line.includes(' lua] ') ? 0 : 1));
process.send('ready');
process.once('message', () => {
  monitor.destroy();
  process.send(count);
  process.disconnect();
});
