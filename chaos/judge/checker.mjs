// Reads a history in the judge's order and finds what a lock must never do. Nothing here compares clocks of two processes.
//
// How an overlap is proved: each act of a holder carries the time that it believes to have left. It was sent after the judge had
// recorded its act before, so it claims at least [that record, that record + remaining]. Another one that enters inside a claim, or
// a claim that is made after another one has entered, is a violation. A holder that has entered, was paused, and finds at its next
// look that it holds no longer is none: that is the pause between check and write which no lock survives, and for which there are tokens.

/** What a lock must never do. Which of it a provider documents under a fault stands in its subject. */
export const RULES = {
  overlap: 'V1, V9 two inside of one key (a reader and a writer, for one), both by their own claim',
  stale: 'V3 a write was accepted after a later holder had entered',
  token: 'V4 a token that is not larger than those of earlier holders',
  stuck: 'V5 waiters of a free key are not served in time',
  leak: 'V6 something is left when everything was released',
  overtaken: 'V7 a waiter of a fair lock was overtaken by one that came later',
  late: 'V10 a lock was held for longer than its lease after its last confirmation',
  unbalanced: 'V11 a release does not say what came of the lock',
  untold: 'the signal of a lock and its release do not tell the same',
  unexpected: 'an error of no documented kind, or a process that ends',
};

// A loss is found by a look at the clock, so it is late by rounding alone; the bound is that of the design.
const LATE = 20;
// Who asked half a second later has come later, whatever the scheduler of this machine does.
const CERTAINLY_LATER = 500;

// An election, with a server that starts again. Faults come one after the other, at other workers and servers each time.
const LONGEST_FAULT = 8_000;

export class Checker {
  #subject;
  #ops = new Map();
  #keys = new Map();
  #fault;
  #faults = [];
  violations = [];
  excused = [];
  counts = { asks: 0, sections: 0, overstays: 0, refused: 0, failed: {} };

  constructor(subject) {
    this.#subject = subject;
  }

  /** The faults with what happened under each, until the next one. */
  get faults() {
    return this.#faults;
  }

  observe(entry) {
    this['_' + entry.event]?.(entry, this.#ops.get(entry.op), this.#key(entry.key));
    const op = this.#ops.get(entry.op);
    if (op) op.before = entry.at;
  }

  _begin({ at, nemesis, of, target, settle }) {
    this.#fault = {
      nemesis,
      of,
      target,
      settle,
      begin: at,
      end: Infinity,
      sections: 0,
      overstays: 0,
      refused: 0,
      violations: 0,
      recovering: new Set(this.#keys.keys()),
    };
    this.#faults.push(this.#fault);
  }

  _end({ at }) {
    this.#fault.end = at;
  }

  /** Nobody asks any more: keys that have not been entered by then say nothing of the fault. */
  _quiet() {
    this.#fault?.recovering.clear();
  }

  _ask({ at, op, key, mode, wait }, _, state) {
    this.counts.asks += 1;
    this.#ops.set(op, {
      op,
      key,
      mode,
      worker: op.split('.')[0],
      askedAt: at,
      before: at,
      claimedUntil: 0,
      floor: state.largest,
    });
    // Who asks once and goes away has no place in a queue.
    if (wait !== 0) state.waiting.add(op);
  }

  _asked({ at }, op) {
    if (op) op.surelyAskedAt = at;
  }

  _failed({ at, op: id, code, unexpected }, op, state) {
    state.waiting.delete(id);
    this.#ops.delete(id);
    state.leftAt.set(op.worker, at);
    const unentered = Math.min(at - op.askedAt, at - (state.enteredAt ?? -Infinity));
    if (code === 'LOCK_BUSY' && unentered > this.#subject.recovery + LONGEST_FAULT) {
      this.#violation('stuck', at, op, `nobody has entered for ${Math.round(unentered)} ms`);
    }
    this.counts.failed[code] = (this.counts.failed[code] ?? 0) + 1;
    if (unexpected) this.#violation('unexpected', at, op, unexpected);
  }

  _enter(entry, op, state) {
    const { at, accepted, token } = entry;
    state.waiting.delete(op.op);
    op.token = token === null ? null : BigInt(token);
    this.#checkToken(at, op, accepted, state);
    this.#checkOrder(at, op, state);
    if (op.token !== null && op.token > state.largest) state.largest = op.token;
    if (!accepted) {
      this.#refused();
      // Whoever came with the larger token was given the lock later; so this one has to know that it holds no longer.
      const follower = follow(op, state);
      if (follower) this.#overtake(op, follower.enteredAt, follower);
      this.#claim(entry, op);
      return;
    }
    op.enteredAt = state.enteredAt = at;
    this.counts.sections += 1;
    if (this.#fault) {
      this.#fault.sections += 1;
      this.#recover(at, op);
    }
    // Without a token nothing refuses who was paused on its way in. It may have had the lock before those who are inside, and has lost it.
    const mayBeEarlier = op.token === null && !entry.held;
    for (const other of state.inside.values()) if (conflict(op, other) && !mayBeEarlier) this.#overlap(at, other, op);
    state.inside.set(op.op, op);
    state.latest[op.mode] = op;
    this.#claim(entry, op);
  }

  /** Everything works again when each key has been entered after the fault. */
  #recover(at, { key }) {
    const { end, recovering } = this.#fault;
    if (at > end && recovering.delete(key) && recovering.size === 0) this.#fault.recovery = at - end;
  }

  _write(entry, op) {
    this._check(entry, op);
    if (!entry.accepted) return this.#refused();
    // Who knows that it holds no longer, and writes all the same, shows what a token is worth. Without one it shows nothing.
    const isJudged = op.token !== null || entry.held;
    if (isJudged && op.overtakenBy !== undefined) this.#violation('stale', entry.at, op, `after ${op.overtakenBy.op}`);
  }

  _check(entry, op) {
    this.#claim(entry, op);
  }

  _leave(entry, op, state) {
    this.#claim(entry, op);
    state.inside.delete(op.op);
  }

  _done({ at, op: id, result, told }, op, state) {
    const known = ['released', 'lost', 'pending'];
    if (!known.includes(result)) this.#violation('unbalanced', at, op, result);
    // It was somebody else's by then, which the backend knows; unless both were let in.
    const { overtakenAt, overtakenBy } = op;
    if (result === 'released' && overtakenBy && !this.#isDocumented('overlap', op, overtakenAt, overtakenAt)) {
      this.#violation('unbalanced', at, op, `released, though ${overtakenBy.op} had entered`);
    }
    if (told === true && result !== 'lost') this.#violation('untold', at, op, `told of a loss, but ${result}`);
    // What only the release has found to be lost, no signal tells any more.
    if (told === false && result === 'lost' && op.isOver)
      this.#violation('untold', at, op, 'lost, and nobody was told');
    state.inside.delete(id);
    this.#ops.delete(id);
    state.leftAt.set(op.worker, at);
  }

  /** A dead process waits for nothing and claims nothing. */
  _gone({ worker }) {
    for (const [id, op] of this.#ops) {
      if (op.worker !== worker) continue;
      const state = this.#key(op.key);
      state.waiting.delete(id);
      state.inside.delete(id);
      this.#ops.delete(id);
    }
  }

  /** Said by the coordinator, which has seen it. */
  _finding({ at, rule, what }) {
    this.#violation(rule, at, undefined, what);
  }

  #claim({ at, held, remaining, overdue }, op) {
    if (!held) {
      op.isOver = true;
      return;
    }
    if (overdue > LATE) this.#violation('late', at, op, `by ${overdue} ms`);
    op.claimedUntil = Math.max(op.claimedUntil, op.before + remaining);
    const { overtakenAt } = op;
    if (overtakenAt !== undefined && (op.claimedUntil > overtakenAt || op.before > overtakenAt)) {
      this.#violation('overlap', at, op, `still claimed after ${op.overtakenBy.op} had entered`, overtakenAt);
    }
  }

  #overtake(op, at, entrant) {
    op.overtakenAt ??= at;
    op.overtakenBy ??= entrant;
  }

  #overlap(at, holder, entrant) {
    this.#overtake(holder, at, entrant);
    // A server may see a killed process end before we do. What such a one says after this counts all the same.
    const mayBeDead = this.#fault?.nemesis === 'worker killed' && holder.worker.startsWith(`${this.#fault.target}/`);
    if (at < holder.claimedUntil && !mayBeDead) this.#violation('overlap', at, holder, `when ${entrant.op} entered`);
    else {
      this.counts.overstays += 1;
      if (this.#fault) this.#fault.overstays += 1;
    }
  }

  /** Larger than that of whoever had entered before it asked; and than that of whoever enters before it, if the resource lets it in. */
  #checkToken(at, op, accepted, { largest, latest }) {
    if (op.token === null) return;
    // Readers that hold together may have one token, or enter in another order than they were granted.
    const isReader = op.mode === 'shared';
    const entered = isReader ? (latest.exclusive?.token ?? -1n) : largest;
    const floor = accepted && entered > op.floor ? entered : op.floor;
    const tooSmall = isReader ? op.token < floor : op.token <= floor;
    if (tooSmall) this.#violation('token', at, op, `${op.token} after ${floor}`);
  }

  #checkOrder(at, op, state) {
    if (!this.#subject.fair) return;
    const cameAt = this.#cameAt(at, op, state);
    for (const id of state.waiting) {
      const waiter = this.#ops.get(id);
      if (!waiter?.surelyAskedAt || waiter.surelyAskedAt < this.#calmSince(waiter)) continue;
      // Readers that are granted together enter in any order.
      if (!conflict(op, waiter)) continue;
      if (cameAt - this.#queuedAt(waiter, op, state) > CERTAINLY_LATER)
        this.#violation('overtaken', at, waiter, `by ${op.op}`);
    }
  }

  /**
   * Where a process has one place in the queue, its readers that wait when one of them is let in enter with that one. So they have
   * come with the first of them, and whoever asks after that is none of them.
   */
  #cameAt(at, op, { groups, waiting }) {
    if (this.#subject.fair !== 'processes' || op.mode !== 'shared') return op.askedAt;
    let group = groups.get(op.worker);
    if (group?.token !== op.token || op.askedAt > group.enteredAt) {
      const mates = [...waiting].map((id) => this.#ops.get(id)).filter((each) => each && isMate(each, op));
      group = { token: op.token, enteredAt: at, cameAt: Math.min(op.askedAt, ...mates.map(({ askedAt }) => askedAt)) };
      groups.set(op.worker, group);
    }
    return Math.min(group.cameAt, op.askedAt);
  }

  /** Where a process has one place in the queue, its next caller takes it when the one before has left. */
  #queuedAt(waiter, op, state) {
    if (this.#subject.fair !== 'processes' || waiter.worker === op.worker) return waiter.surelyAskedAt;
    return Math.max(waiter.surelyAskedAt, state.leftAt.get(waiter.worker) ?? 0);
  }

  /** Since when nothing has disturbed this waiter. A fault of another worker is none of its business: the order of the rest stands. */
  #calmSince({ worker }) {
    const disturbing = this.#faults.findLast(({ of, target }) => of !== 'worker' || worker.startsWith(`${target}/`));
    return disturbing ? disturbing.end + (this.#subject.settle ?? 0) : 0;
  }

  #refused() {
    this.counts.refused += 1;
    if (this.#fault) this.#fault.refused += 1;
  }

  #violation(rule, at, op, what, since = at) {
    const fault = this.#fault;
    const found = {
      rule,
      at,
      op: op?.op,
      key: op?.key,
      what,
      under: fault && since <= fault.end + this.#subject.lifetime ? fault.nemesis : 'no fault',
    };
    if (this.#isDocumented(rule, op, at, since)) {
      this.excused.push(found);
      return;
    }
    this.violations.push(found);
    if (fault) fault.violations += 1;
  }

  #isDocumented(rule, op, at, since) {
    const { allows, lifetime, settle = 0, toldWithin = Infinity } = this.#subject;
    // A holder that was deprived by a fault is told at its deadline, whatever fault comes in between.
    if (at - since > toldWithin) return false;
    return this.#faults.some((fault) => {
      const covers = since >= fault.begin && since <= fault.end + lifetime && allows[fault.nemesis]?.includes(rule);
      // Nobody is deprived by a fault that was over when it asked. Two are, of which the other one may have asked later.
      return covers && (rule !== 'overlap' || op.askedAt <= fault.end + (fault.settle ?? settle));
    });
  }

  #key(key) {
    if (key === undefined) return undefined;
    let state = this.#keys.get(key);
    if (!state)
      this.#keys.set(
        key,
        (state = {
          inside: new Map(),
          waiting: new Set(),
          groups: new Map(),
          leftAt: new Map(),
          largest: -1n,
          latest: {},
        }),
      );
    return state;
  }
}

/** Whoever is in the way of this one and has entered with a larger token, as far as they have tokens. */
const follow = (op, { latest }) => Object.values(latest).find((other) => conflict(op, other) && other.token > op.token);

const isMate = (one, other) => one.mode === 'shared' && one.worker === other.worker;

const conflict = (one, other) => one.mode === 'exclusive' || other.mode === 'exclusive';
