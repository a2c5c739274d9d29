// One logical client: takes a lock, acts on the resource, gives the lock back, and tells the judge all of it.
import { setTimeout as sleep } from 'node:timers/promises';

/** What our library may answer to who does not get a lock; anything else is a finding. */
const REFUSALS = new Set(['LOCK_BUSY', 'LOCK_UNAVAILABLE', 'LOCK_LOST', 'LOCK_CAPACITY', 'ABORTED']);

export class Client {
  #subject;
  #resource;
  #random;
  #name;
  #keys;
  #fresh;
  #ops = 0;

  /** `fresh`: the share of sections under a key of their own, which nobody uses before or after. */
  constructor({ subject, resource, random, name, keys, fresh = 0 }) {
    this.#subject = subject;
    this.#resource = resource;
    this.#random = random;
    this.#name = name;
    this.#keys = keys;
    this.#fresh = fresh;
  }

  /** One section, from the ask to the confirmed release. */
  async section() {
    this.#ops += 1;
    const op = `${this.#name}.${this.#ops}`;
    const key = this.#fresh > 0 && this.#random.chance(this.#fresh) ? op : this.#random.pick(this.#keys);
    const mode = this.#subject.shared && this.#random.chance(0.2) ? 'shared' : 'exclusive';
    const about = { op, key, mode };
    const wait = this.#random.chance(0.15) ? 0 : this.#subject.wait;
    await this.#resource.tell({ event: 'ask', ...about, wait });
    const lock = await this.#take(about, wait);
    if (!lock) return;
    await this.#act(about, lock);
    const result = await lock.release();
    await this.#resource.tell({ event: 'done', ...about, result, told: lock.isTold?.() });
  }

  async #take(about, wait) {
    const leaves = this.#random.chance(0.05) ? AbortSignal.timeout(this.#random.between(1, 80)) : undefined;
    try {
      const taking = this.#subject.acquire(about.key, { mode: about.mode, wait, signal: leaves });
      this.#resource.post({ event: 'asked', ...about });
      return await taking;
    } catch (error) {
      const code = leaves?.aborted && error === leaves.reason ? 'ABORTED' : (error.code ?? String(error));
      const expected = REFUSALS.has(code) || this.#subject.isRefusal?.(error);
      await this.#resource.tell({
        event: 'failed',
        ...about,
        code,
        ...(expected ? {} : { unexpected: String(error.stack) }),
      });
      return undefined;
    }
  }

  async #act(about, lock) {
    const token = lock.token === null ? null : String(lock.token);
    const tell = (event) => this.#resource.tell({ event, ...about, token, ...lock.claim() });
    if ((await tell('enter')) === false) {
      // Somebody has entered with a larger token; who believes to hold all the same says so now.
      await tell('check');
      return;
    }
    // A section that outlives its lease needs the watchdog.
    const length = this.#random.chance(0.005) ? this.#subject.lifetime * 1.3 : this.#random.between(0, 12);
    const acts = this.#random.between(1, 3);
    for (let act = 0; act < acts && lock.claim().held; act += 1) {
      await sleep(length / acts);
      await tell(this.#random.chance(0.7) ? 'write' : 'check');
    }
    await tell('leave');
  }
}
