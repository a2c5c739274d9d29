// Rules for deadlock detection: it must not refuse a caller because of a cycle that didn't exist, and must not leave
// callers in a cycle that persists.
//
// A client records each wait under other locks before it requests the lock, and again after the wait is over. So the
// real wait is never longer than the recorded one, and a cycle that the records exclude never existed. No clocks of
// different processes are compared here.

/**
 * A wait is published after 1 s, and the cycle still existed after that: see docs/deadlocks.md. So all its callers must
 * have waited together for at least this time, under any fault.
 */
const TOGETHER = 1_000;
/**
 * A process removes a wait's record when the wait is over. This allows for the network, a read already in progress, and
 * a busy machine.
 */
const REMOVED = 1_000;
/** A record that its process can't remove expires after this time. */
const KEPT = 3_000;
/** A deadlock is found within 5 s. Another cycle of the same caller may occupy the search for 3 s before that. */
const FOUND = 8_000;
/** Longer than any fault, including everything allowed after it. */
const REMEMBERED = 60_000;

export class CycleRules {
  /** By id: `{ id, worker, key, mode, holds, from, to }`. */
  #waits = new Map();
  #reconnect;
  /**
   * How many callers were refused; how many of these refusals no fault concerned (`calm`); the maximum time since such
   * a cycle had ended, in ms; the minimum time its callers had waited together, in ms; and how many callers waited in
   * vain.
   */
  counts = { refused: 0, calm: 0, ended: 0, together: undefined, busy: 0 };

  /** `reconnect`: for how many ms after a fault a client may be disconnected. */
  constructor({ reconnect = 0 }) {
    this.#reconnect = reconnect;
  }

  /** A caller that holds these keys is about to wait for another key. */
  begun(at, { wait: id, worker, key, mode, holds }) {
    for (const [old, { to }] of this.#waits) if (to < at - REMEMBERED) this.#waits.delete(old);
    this.#waits.set(id, { id, worker, key, mode, holds, from: at, to: Infinity });
  }

  /** The wait is over. Returns what was wrong with its outcome, as `{ rule, what }`, if anything was. */
  ended(at, { wait: id, code, cycle }, faults) {
    const wait = this.#waits.get(id);
    wait.to = at;
    if (code === 'LOCK_DEADLOCK') return this.#refused(at, wait, cycle, faults);
    if (code === 'LOCK_BUSY') return this.#busy(at, wait, faults);
    return undefined;
  }

  /** A dead process no longer waits. */
  gone(at, worker) {
    for (const wait of this.#waits.values()) if (wait.worker === worker) wait.to = Math.min(wait.to, at);
  }

  #refused(at, own, cycle, faults) {
    this.counts.refused += 1;
    const wrong = (what) => ({ rule: 'false-alarm', what: `${what}: ${textOf(cycle)}` });
    const isClosed = cycle.every(({ holds }, index) => holds === cycle.at(index - 1).waitsFor);
    if (cycle.length < 2 || !isClosed) return wrong('a cycle that is not closed');
    if (!isMember(own, cycle[0])) return wrong('a cycle without the caller that was refused');
    const together = this.#together(own, cycle.slice(1));
    if (together === undefined) return wrong('its callers did not wait together');
    const fromEnd = at - together.to;
    const concerning = this.#concerning(
      cycle.map(({ instance }) => instance),
      faults,
      together.to - REMOVED,
      at,
    );
    if (concerning.length === 0) this.#count(fromEnd, together);
    if (fromEnd <= REMOVED + allowanceFor(concerning, at, this.#reconnect)) return undefined;
    return wrong(`it had ended ${Math.round(fromEnd)} ms before`);
  }

  #count(fromEnd, { from, to }) {
    const { calm, ended, together = Infinity } = this.counts;
    Object.assign(this.counts, {
      calm: calm + 1,
      ended: Math.max(ended, Math.round(fromEnd)),
      together: Math.min(together, Math.round(to - from)),
    });
  }

  /**
   * The time during which all members waited, if that was long enough. If several recorded waits match a member, the
   * latest such time.
   */
  #together(own, others) {
    const all = [...this.#waits.values()];
    const latest = (from, to, members) => {
      if (to - from < TOGETHER) return undefined;
      const [member, ...rest] = members;
      if (member === undefined) return { from, to };
      return all
        .filter((wait) => isMember(wait, member))
        .map((wait) => latest(Math.max(from, wait.from), Math.min(to, wait.to), rest))
        .reduce((one, other) => (one === undefined || other?.to > one.to ? other : one), undefined);
    };
    return latest(own.from, own.to, others);
  }

  /**
   * A caller gave up. That is allowed unless its cycle lasted for a long time and no fault kept any of its callers from
   * the server: another caller of the same cycle may have been refused.
   */
  #busy(at, own, faults) {
    this.counts.busy += 1;
    const cycle = this.#cycleOf(own, at - FOUND);
    if (cycle === undefined) return undefined;
    const since = Math.min(...cycle.map(({ from }) => from));
    const workers = cycle.map(({ worker }) => worker);
    if (this.#concerning(workers, faults, since, at).length > 0) return undefined;
    const members = cycle.map(({ worker, key }, index) => {
      return { instance: worker, holds: cycle.at(index - 1).key, waitsFor: key };
    });
    return { rule: 'unrefused', what: `its cycle lasted for ${FOUND} ms: ${textOf(members)}` };
  }

  /** The waits that have formed a cycle with this one since that time. */
  #cycleOf(own, since) {
    const waiting = [...this.#waits.values()].filter(
      ({ from, to }) => from <= since && (to === Infinity || to === own.to),
    );
    const seen = new Set();
    const path = (wait) => {
      if (wait.from > since || seen.has(wait)) return undefined;
      seen.add(wait);
      for (const holder of waiting.filter((each) => keepsOut(each, wait))) {
        const rest = holder === own ? [] : path(holder);
        if (rest) return [wait, ...rest];
      }
      return undefined;
    };
    return path(own);
  }

  /** The faults that these processes may have noticed during this time. */
  #concerning(workers, faults, from, to) {
    return faults.filter(({ of, target, begin, end, settle = 0 }) => {
      const isTheirs = of !== 'worker' || workers.some((worker) => worker.startsWith(`${target}/`));
      return isTheirs && begin <= to && end + Math.max(settle, this.#reconnect) >= from;
    });
  }
}

/** A record that a fault preserved expires, and a read that a fault interrupted continues after it. */
function allowanceFor(faults, at, reconnect) {
  if (faults.length === 0) return 0;
  const lengths = faults.map(({ begin, end, settle = 0 }) => Math.min(end, at) - begin + Math.max(settle, reconnect));
  return KEPT + lengths.reduce((sum, each) => sum + each, 0);
}

const isMember = (wait, { instance, holds, waitsFor, mode }) =>
  wait.worker === instance && wait.key === waitsFor && wait.mode === mode && wait.holds.includes(holds);

const keepsOut = (holder, wait) =>
  holder.holds.includes(wait.key) && (holder.mode === 'exclusive' || wait.mode === 'exclusive');

const textOf = (cycle) =>
  cycle.map(({ instance, holds, waitsFor }) => `${instance} holds ${holds}, waits for ${waitsFor}`).join('; ');
