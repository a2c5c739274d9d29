/** How many keys most calls take, of how many. */
const KEYS_OF_CALL = 3;
const KEYS = ['a', 'b', 'c', 'd', 'e'];
/** Longer than a call may wait for each of its keys, so that a key that nobody is served is found. */
const WAIT = 40_000;

/** A subject whose clients take several keys at a time. The judge sees each key as a lock of its own. */
export function severalKeysOf(subject) {
  return {
    ...subject,
    title: `several keys on ${subject.title}`,
    keys: KEYS,
    // A call waits for one key after the other, each time behind callers that may wait for the next one.
    recovery: KEYS_OF_CALL * subject.recovery,
    // A process asks for one key by several requests: one for each number of keys that its callers hold by then.
    fair: false,
    connect: async (settings) => ({
      ...(await subject.connect(settings)),
      wait: WAIT,
      keysOfCall: KEYS_OF_CALL,
      limited: undefined,
    }),
  };
}

/** So many sections are so long, in ms, that those who wait for them look for a deadlock. */
const LONG = { share: 0.05, length: 1_500 };

/**
 * A subject whose clients nest the locks of several keys, all in one order, so that they never wait for each other in a cycle: a `LockDeadlockError` is
 * undocumented, and fails the run. Not for subjects that have locks without a core.
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

/** These locks, each with its `key`, as one of several keys. */
export async function together(locks) {
  const lockOf = (key) => locks.find((lock) => lock.key === key);
  const release = async () => {
    const results = await Promise.all(locks.toReversed().map((lock) => lock.release()));
    // The signal of all of them reports the loss of one.
    return ['lost', 'pending'].find((result) => results.includes(result)) ?? 'released';
  };
  // As the core does with several keys.
  if (locks.some((lock) => !lock.claim(lock.key).held)) {
    await release();
    throw Object.assign(new Error('One was lost before all were acquired.'), { code: 'LOCK_LOST' });
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
