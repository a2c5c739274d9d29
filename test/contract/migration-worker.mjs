// One instance of an application in a rolling deployment. It takes the lock again and again, by the engines of its generation,
// and tells the observer when it is inside.
import { connect } from 'node:net';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [, , library, observer, urlA, urlB, generation] = process.argv;
const load = (file) => import(pathToFileURL(join(library, file)).href);
const { RedisLockProvider } = await load('providers/redis/index.js');
const { CombinedProvider } = await load('providers/combined/combined-provider.js');
const { LockManager } = await load('core/lock-manager.js');

const engines = generation.split('+');
const [urls, providers] = [{ a: urlA, b: urlB }, {}];
for (const engine of engines) providers[engine] = new RedisLockProvider({ url: urls[engine] });
if (engines.length > 1) providers.both = new CombinedProvider({ engines, quorum: 'all' });
const locks = new LockManager({ providers, default: engines.length > 1 ? 'both' : engines[0] });
await locks.start();

const socket = connect(Number(observer), '127.0.0.1');
socket.setNoDelay(true);
/** Says it, and waits for the observer to have written it down. */
const tell = (what) =>
  new Promise((resolve) => {
    socket.once('data', resolve);
    socket.write(`${what}\n`);
  });

let isStopping = false;
process.on('message', () => (isStopping = true));
process.on('disconnect', () => process.exit());
process.send('ready');
while (!isStopping) {
  const lock = await locks.acquire('stock', { wait: '30s' });
  await tell('in');
  await tell('out');
  await lock.release();
}
socket.destroy();
await locks.stop();
process.exit();
