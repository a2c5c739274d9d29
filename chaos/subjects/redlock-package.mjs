// Control: the package `redlock`, used as its documentation shows, by `using` and its signal.
const LEASE = 400;

export const title = 'control: package redlock 5.0.0-beta.2';
/** Its signal comes from timers, which a pause or a blocked event loop holds up. */
export const control = ['late'];
export const recovery = LEASE + 5_000;
export const fair = false;
export const nemeses = ['worker paused', 'event loop blocked', 'client clock stepped'];
export const allows = {};
export const lifetime = LEASE;

export async function startBackend() {
  const { startRedisNode } = await import('./redis-backend.mjs');
  const node = await startRedisNode();
  return { servers: [node], leftovers: () => [], stop: () => node.stop() };
}

export async function connect({ ports }) {
  const [{ Redis }, { default: Redlock }] = await Promise.all([import('ioredis'), import('redlock')]);
  const redis = new Redis(ports[0], '127.0.0.1');
  redis.on('error', () => undefined);
  const redlock = new Redlock([redis], { retryDelay: 20, retryJitter: 20, automaticExtensionThreshold: 100 });
  redlock.on('error', () => undefined);
  return {
    lifetime: LEASE,
    wait: 5_000,
    shared: false,
    isRefusal: () => true,
    acquire: (key, { wait }) => take(redlock, key, Math.ceil(wait / 30)),
    stop: async () => redis.disconnect(),
  };
}

/** A lock of `using` that the caller ends. */
function take(redlock, key, retryCount) {
  return new Promise((resolve, reject) => {
    let confirmedAt;
    // The moments of its own confirmations, which `using` does not tell.
    const observed = Object.create(redlock, {
      acquire: { value: (...args) => redlock.acquire(...args).then(confirm) },
      extend: { value: (...args) => redlock.extend(...args).then(confirm) },
    });
    function confirm(lock) {
      confirmedAt = performance.now();
      return lock;
    }
    const over = observed.using([key], LEASE, { retryCount }, (signal) => {
      return new Promise((end) => {
        const claim = () => {
          const overdue = Math.round(performance.now() - confirmedAt - LEASE);
          return { held: !signal.aborted, remaining: 0, overdue };
        };
        const release = () => {
          end();
          return over.then(
            () => 'released',
            () => 'lost',
          );
        };
        resolve({ token: null, claim, release });
      });
    });
    over.catch(reject);
  });
}
