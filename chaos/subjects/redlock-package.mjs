// Control: the `redlock` package, used as its documentation shows, with `using` and its signal.
const LEASE = 400;

export const title = 'control: package redlock 5.0.0-beta.2';
/** A timer aborts its signal, so a pause or a blocked event loop delays the signal. */
export const control = ['late'];
export const recovery = LEASE + 5_000;
export const fair = false;
export const faults = ['worker paused', 'event loop blocked', 'client clock stepped'];
export const allows = {};
export const lifetime = LEASE;

export async function startBackend() {
  const { startRedisNode } = await import('./redis-node.mjs');
  const node = await startRedisNode();
  return { servers: [node], remainingLocks: () => [], stop: () => node.stop() };
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
    isDocumentedError: () => true,
    acquire: (key, { wait }) => acquire(redlock, key, Math.ceil(wait / 30)),
    stop: async () => redis.disconnect(),
  };
}

/** Acquires a lock with `using` that lasts until the caller releases it. */
function acquire(redlock, key, retryCount) {
  return new Promise((resolve, reject) => {
    let confirmedAt;
    // `using` doesn't report when its lock was confirmed, so these two methods are observed.
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
        resolve({ tokenOf: () => null, claim, release });
      });
    });
    over.catch(reject);
  });
}
