// An instance of an application in a rolling deployment. It locks and unlocks in a loop with its generation's
// providers, and reports to the observer while it's inside.
import { connect } from 'node:net';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [, , library, observer, urlA, urlB, generation] = process.argv;
const load = (file) => import(pathToFileURL(join(library, file)).href);
const { RedisLockProvider } = await load('providers/redis/index.js');
const { CombinedLockProvider } = await load('providers/combined/combined-lock-provider.js');
const { LockManager } = await load('core/lock-manager.js');

const members = generation.split('+');
const [urls, providers] = [{ a: urlA, b: urlB }, {}];
for (const name of members) providers[name] = new RedisLockProvider({ url: urls[name] });
if (members.length > 1) providers.both = new CombinedLockProvider({ providers: members });
const locks = new LockManager({ providers, default: members.length > 1 ? 'both' : members[0] });
await locks.start();

const socket = connect(Number(observer), '127.0.0.1');
socket.setNoDelay(true);
/** Reports an event, and waits until the observer has recorded it. */
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
