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
