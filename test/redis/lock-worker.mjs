// A separate process with one backend. On a message, it acquires the lock, reports the grant, and keeps renewing the
// lock like the watchdog.
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [, , library, url] = process.argv;
const load = (file) => import(pathToFileURL(join(library, file)).href);
const { RedisLockProvider } = await load('providers/redis/index.js');
const { systemClock } = await load('core/toolkit/clock.js');
const { systemRandom } = await load('core/toolkit/random.js');
const { silentLogger } = await load('api/logger.js');

const random = systemRandom();
const id = random.id().slice(0, 12);
const backend = new RedisLockProvider({ url }).createBackend({
  name: 'redis',
  namespace: 'lock',
  instance: { id, name: `worker-${process.pid}` },
  clock: systemClock,
  random,
  logger: silentLogger,
  emit: ({ type }) => process.send({ event: type }),
});
await backend.connect();
process.on('message', async ({ key, lease, holdFor }) => {
  const request = {
    key,
    id: random.id(),
    mode: 'exclusive',
    lease,

    minHold: 0,
    otherKeysHeld: 0,
    wait: 60_000,
    since: 0,
    callers: 1,
    signal: new AbortController().signal,
    waits: () => process.send({ event: 'waiting' }),
    lost: () => process.send({ event: 'lost' }),
  };
  const grant = await backend.acquire(request);
  process.send({ event: 'granted', token: String(grant.fencingToken) });
  const renewal = setInterval(() => void backend.renew(request, lease), lease / 3);
  if (holdFor === undefined) return;
  setTimeout(async () => {
    clearInterval(renewal);
    process.send({ event: 'released', outcome: await backend.release(request, { keepFor: 0, failed: false }) });
  }, holdFor);
});
process.on('disconnect', () => process.exit());
process.send({ event: 'ready' });
