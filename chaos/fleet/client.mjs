// One logical client: acquires a lock, acts on the resource, releases the lock, and records each step with the
// resource.
import { setTimeout as sleep } from 'node:timers/promises';

/** The documented error codes of a failed acquire. Any other error is a violation. */
const DOCUMENTED_ERRORS = new Set(['LOCK_BUSY', 'LOCK_UNAVAILABLE', 'LOCK_LOST', 'LOCK_CAPACITY', 'ABORTED']);

/** The combined weight that all holders of a limited lock may take. */
const LIMIT = 3;

export class Client {
  #subject;
  #resource;
  #random;
  #name;
  #keys;
  #freshKeys;
  #onRelease;
  #sections = 0;

  /** `freshKeys`: the share of sections that use a new key of their own. */
  constructor({ subject, resource, random, name, keys, freshKeys = 0, onRelease }) {
    this.#subject = subject;
    this.#resource = resource;
    this.#random = random;
    this.#name = name;
    this.#keys = keys;
    this.#freshKeys = freshKeys;
    this.#onRelease = onRelease;
  }

  /**
   * Runs one section, from the acquire to the end of the release. What isn't passed is chosen at random. With
   * `isExtra`, no other fault uses its key. A section fails the run if it ends with the error code `never`. It makes
   * `acts` acts within `length`, unless the signal `over` ends it earlier. A lock of several keys is recorded as one
   * lock for each key.
   */
  async section({ length, over, acts, ...given } = {}) {
    this.#sections += 1;
    const op = `${this.#name}.${this.#sections}`;
    const isFresh = this.#freshKeys > 0 && this.#random.chance(this.#freshKeys);
    const drawn = isFresh ? [op] : this.#drawKeys();
    const keys = given.key === undefined ? drawn : [given.key];
    const wait = this.#random.chance(0.15) ? 0 : this.#subject.wait;
    const { wait: patience, ...about } = { wait, ...this.#kindFor(keys[0]), ...given };
    const parts = keys.map((key) => ({ ...about, op: keys.length > 1 ? `${op}.${key}` : op, key }));
    for (const part of parts) await this.#resource.record({ event: 'attempt', ...part, wait: patience });
    const lock = await this.#acquire(parts, patience);
    if (!lock) return;
    await this.#act(parts, lock, { length, over, acts });
    const releasing = lock.release();
    for (const key of keys) this.#onRelease(key);
    const result = await releasing;
    for (const part of parts) {
      await this.#resource.record({ event: 'done', ...part, result, signaled: lock.isSignaled?.() });
    }
  }

  #drawKeys() {
    const { keysOfCall = 1 } = this.#subject;
    if (keysOfCall === 1 || this.#random.chance(0.2)) return [this.#random.pick(this.#keys)];
    return this.#random.shuffled(this.#keys).slice(0, keysOfCall);
  }

  /** How to lock the key: exclusively, shared, or as part of a limit. */
  #kindFor(key) {
    const { shared, limited } = this.#subject;
    if (limited?.keys.includes(key)) {
      const weight = this.#random.chance(0.3) ? 2 : 1;
      return this.#random.chance(limited.share) ? { mode: 'limited', limit: LIMIT, weight } : { mode: 'exclusive' };
    }
    return { mode: shared && this.#random.chance(0.2) ? 'shared' : 'exclusive' };
  }

  async #acquire(parts, wait) {
    const cancelled = this.#random.chance(0.05) ? AbortSignal.timeout(this.#random.between(1, 80)) : undefined;
    try {
      const [{ key, mode, limit, weight }, ...others] = parts;
      const kind = mode === 'limited' ? { limit, weight } : { mode };
      const keys = others.length > 0 ? parts.map((part) => part.key) : key;
      const acquired = this.#subject.acquire(keys, { ...kind, wait, signal: cancelled });
      for (const part of parts) this.#resource.send({ event: 'sent', ...part });
      return await acquired;
    } catch (error) {
      const code = cancelled?.aborted && error === cancelled.reason ? 'ABORTED' : (error.code ?? String(error));
      const isDocumented = DOCUMENTED_ERRORS.has(code) || this.#subject.isDocumentedError?.(error);
      for (const part of parts) {
        await this.#resource.record({
          event: 'failed',
          ...part,
          // An error names the key that failed. The call may have held the other keys meanwhile.
          code: parts.length > 1 && error.key !== part.key ? `${code}, another key` : code,
          reason: error.message,
          ...(isDocumented ? {} : { unexpected: String(error.stack) }),
        });
      }
      return undefined;
    }
  }

  async #act(parts, lock, given) {
    const record = async (event) => {
      let isAccepted = true;
      for (const part of parts) {
        const token = lock.tokenOf(part.key);
        const entry = { event, ...part, token: token === null ? null : String(token), ...lock.claim(part.key) };
        isAccepted = (await this.#resource.record(entry)) !== false && isAccepted;
      }
      return isAccepted;
    };
    if (!(await record('enter'))) {
      // A later holder has already entered with a larger token. The next claim must say that this lock is no longer
      // held.
      await record('check');
      return;
    }
    // A section that outlasts its lease relies on the watchdog.
    const { lifetime, longSections = { share: 0.005, length: lifetime * 1.3 } } = this.#subject;
    const drawn = this.#random.chance(longSections.share) ? longSections.length : this.#random.between(0, 12);
    const length = given.length ?? drawn;
    const acts = given.acts ?? this.#random.between(1, 3);
    for (let act = 0; act < acts && !given.over?.aborted && lock.claim(parts[0].key).held; act += 1) {
      await sleep(length / acts, undefined, { signal: given.over }).catch(() => undefined);
      await record(this.#random.chance(0.7) ? 'write' : 'check');
    }
    await record('leave');
  }
}
