import { setTimeout as sleep } from 'node:timers/promises';
import { seededRandom } from '../random.mjs';
import { severalKeysOf, together } from './several-keys.mjs';

/**
 * Half of the waits end at about the time a deadlock is proved, so that cycles dissolve during the proof. In the other
 * half, a deadlock must be found.
 */
const SHORT = [3_000, 4_000];
const LONG = 12_000;
/** The maximum number of nested locks for each caller. */
const NESTED = 3;
/**
 * How long a caller whose inner lock was refused may continue under the outer one, in ms: it no longer waits, but still
 * holds. Longer than the time the judge allows between the end of a cycle and a refusal, so that the judge detects a
 * cycle that is believed during that time.
 */
const LINGER = 3_000;
/** Enough for several simultaneous cycles. */
const KEYS = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i'];
/** Cycles without a fault need some time between faults. */
const CALM = [1_000, 12_000];

/**
 * A subject whose clients nest two or three locks in any order, so that they wait for each other in cycles. The judge
 * checks each reported cycle.
 */
export function oppositeKeysOf(subject) {
  const several = severalKeysOf(subject);
  return {
    ...several,
    title: `locks nested in any order on ${subject.title}`,
    keys: KEYS,
    // Of the callers left when a cycle is refused, some close the next cycle, and each takes the search 3 s. So only
    // the waits bound how long it takes until all clients have finished.
    recovery: NESTED * (LONG + LINGER) + subject.recovery,
    calm: CALM,
    cycles: true,
    connect: async (settings) => {
      const random = seededRandom(`${settings.seed}/${settings.worker}/nesting`);
      const connected = await several.connect(settings);
      const nesting = new Nesting(connected, settings, random);
      return {
        ...connected,
        wait: LONG,
        keysOfCall: random.pick([2, NESTED]),
        isDocumentedError: ({ code, cycle }) => code === 'LOCK_DEADLOCK' && cycle,
        acquire: async (keys, terms) => together(await nesting.acquire([keys].flat(), terms)),
      };
    },
  };
}

class Nesting {
  #subject;
  #history;
  #worker;
  #random;
  #waits = 0;

  constructor(subject, { history, worker }, random) {
    this.#subject = subject;
    this.#history = history;
    this.#worker = worker;
    this.#random = random;
  }

  async acquire([key, ...others], terms, outer = []) {
    const lock = { ...(await this.#wait(key, terms, outer)), key };
    if (others.length === 0) return [lock];
    try {
      return [lock, ...(await lock.run(() => this.#acquireInner(others, terms, [...outer, lock])))];
    } catch (error) {
      await lock.release();
      throw error;
    }
  }

  async #acquireInner(keys, terms, outer) {
    try {
      return await this.acquire(keys, terms, outer);
    } catch (error) {
      if (this.#random.chance(0.5)) await sleep(this.#random.between(0, LINGER));
      throw error;
    }
  }

  /** Some callers leave before their wait is over. */
  async #wait(key, terms, outer) {
    const left =
      outer.length > 0 && terms.wait > 0 && this.#random.chance(0.15)
        ? AbortSignal.timeout(this.#random.between(1_000, SHORT[1]))
        : undefined;
    const signals = [terms.signal, left].filter(Boolean);
    const signal = signals.length > 0 ? AbortSignal.any(signals) : undefined;
    try {
      return await this.#record(key, { ...terms, wait: this.#timeOf(terms), signal }, outer);
    } catch (error) {
      if (left?.aborted && error === left.reason)
        throw Object.assign(new Error('The caller left.'), { code: 'ABORTED' });
      throw error;
    }
  }

  #timeOf({ wait }) {
    if (wait !== LONG) return wait;
    return this.#random.chance(0.5) ? LONG : this.#random.between(...SHORT);
  }

  async #record(key, terms, outer) {
    const holds = outer.filter((lock) => lock.claim(lock.key).held).map((lock) => lock.key);
    if (holds.length === 0 || terms.wait === 0) return this.#subject.acquire(key, terms, holds);
    this.#waits += 1;
    const wait = `${this.#worker}#${this.#waits}`;
    const about = { wait, worker: this.#worker, key };
    const ended = (end) => this.#history.send({ event: 'waited', ...about, ...end });
    await this.#history.record({ event: 'waits', ...about, mode: terms.mode, holds });
    try {
      const lock = await this.#subject.acquire(key, terms, holds);
      ended({});
      return lock;
    } catch (error) {
      ended({ code: error.code, cycle: error.cycle ?? undefined });
      throw error;
    }
  }
}
