/** How many keys most calls take, out of how many. */
const KEYS_OF_CALL = 3;
const KEYS = ['a', 'b', 'c', 'd', 'e'];
/** Longer than a call may wait for each of its keys, so that a starved key is detected. */
const WAIT = 40_000;

/** A subject whose clients take several keys at a time. The judge treats each key as a separate lock. */
export function severalKeysOf(subject) {
  return {
    ...subject,
    title: `several keys on ${subject.title}`,
    keys: KEYS,
    // A call waits for one key after another, each time behind callers that may wait for the next one.
    recovery: KEYS_OF_CALL * subject.recovery,
    // A process makes several requests for one key: one for each number of keys that its callers already hold.
    fair: false,
    connect: async (settings) => ({
      ...(await subject.connect(settings)),
      wait: WAIT,
      keysOfCall: KEYS_OF_CALL,
      limited: undefined,
    }),
  };
}

/** The share and length, in ms, of sections long enough that their waiters check for a deadlock. */
const LONG = { share: 0.05, length: 1_500 };

/**
 * A subject whose clients nest the locks of several keys in one order, so that they never wait for each other in a
 * cycle: a `LockDeadlockError` is undocumented and fails the run. Not for subjects with locks without a core.
 */
export function nestedKeysOf(subject) {
  const several = severalKeysOf(subject);
  return {
    ...several,
    title: `nested locks on ${subject.title}`,
    longSections: LONG,
    connect: async (settings) => {
      const connected = await several.connect(settings);
      return {
        ...connected,
        async acquire(keys, terms) {
          return together(await nest(connected.acquire, [keys].flat().toSorted(), terms));
        },
      };
    },
  };
}

/** Combines locks, each with its `key`, into a lock of several keys. */
export async function together(locks) {
  const lockOf = (key) => locks.find((lock) => lock.key === key);
  const release = async () => {
    const results = await Promise.all(locks.toReversed().map((lock) => lock.release()));
    // The combined signal reports the loss of any one of them.
    return ['lost', 'pending'].find((result) => results.includes(result)) ?? 'released';
  };
  // The core does the same with several keys.
  if (locks.some((lock) => !lock.claim(lock.key).held)) {
    await release();
    throw Object.assign(new Error('One lock was lost before all were acquired.'), { code: 'LOCK_LOST' });
  }
  return {
    release,
    tokenOf: (key) => lockOf(key).tokenOf(key),
    claim: (key) => lockOf(key).claim(key),
    isSignaled: () => locks.some((lock) => lock.isSignaled()),
  };
}

async function nest(acquire, [key, ...others], terms) {
  const lock = { ...(await acquire(key, terms)), key };
  if (others.length === 0) return [lock];
  try {
    return [lock, ...(await lock.run(() => nest(acquire, others, terms)))];
  } catch (error) {
    await lock.release();
    throw error;
  }
}
