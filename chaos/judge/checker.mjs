// Reads a history in the order of the resource and finds violations of a lock's promises. It never compares the clocks
// of two processes.
//
// How it proves an overlap: each act states for how long the holder believes it holds the lock. The holder sent it
// after the resource had acknowledged the holder's previous act, so the holder claims at least the interval [previous
// record, previous record + remaining]. It is a violation if another process enters within this interval, or if a claim
// is made after another process has entered. A holder that was paused and finds at its next check that it no longer
// holds the lock violates nothing: no lock survives a pause between check and write. Fencing tokens exist for that
// pause.

import { CycleRules } from './cycle-rules.mjs';
import { TickRules } from './tick-rules.mjs';

/**
 * What a lock must never do: the rule's id in the documentation, and a description. A subject lists the faults for
 * which its documentation waives a rule.
 */
export const RULES = {
  overlap: { id: 'V1, V9', text: 'two holders (or a reader and a writer) are inside one key, both by their own claim' },
  stale: { id: 'V3', text: 'a write was accepted after a later holder had entered' },
  token: { id: 'V4', text: 'a token is not larger than those of earlier holders' },
  stuck: { id: 'V5', text: 'waiters of a free key were not served in time' },
  leak: { id: 'V6', text: 'something remains after everything was released' },
  overtaken: {
    id: 'V7',
    text: 'a waiter of a fair lock was overtaken by one that came later, and not within the first cohort of a process',
  },
  limit: { id: 'V8', text: 'the holders of a limited lock took more than the limit, each by its own claim' },
  late: { id: 'V10', text: 'a lock was held for longer than its lease after its last confirmation' },
  release: { id: 'V11', text: 'the outcome of a release is wrong or undocumented' },
  twice: {
    id: 'V12',
    text: 'a tick of a job was begun twice, or after a later one, and not because its run was abandoned',
  },
  missed: {
    id: 'V13',
    text: 'a tick of a job was not begun, although no run and no outage kept its instances from it',
  },
  'false-alarm': {
    id: 'V14',
    text: 'a caller was refused for a cycle of callers that had ended, or that never was',
  },
  unrefused: { id: 'V15', text: 'callers waited for each other in a cycle, and none of them was refused' },
  sessions: { id: 'sessions', text: 'the server kept sessions of a process that had been killed' },
  signal: { id: 'signal', text: 'the signal of a lock and its release disagree' },
  unexpected: { id: 'unexpected', text: 'an undocumented error, or a process that exited' },
};

/** The documented results of `release()`, apart from re-entry. */
const RELEASE_RESULTS = ['released', 'lost', 'pending'];

// A loss is detected by reading the clock, so only rounding can delay it. This bound comes from the design.
const LATE = 20;
// A caller that arrived half a second later did arrive later, whatever this machine's scheduler does.
const CERTAINLY_LATER = 500;
// A process admits callers for 10 ms after its grant. The resource records each of them when its first act arrives.
const COHORT = 100;
// An election combined with a server restart. Faults occur one after another, each on other workers and servers.
const LONGEST_FAULT = 8_000;

export class Checker {
  #subject;
  #ops = new Map();
  #keys = new Map();
  #fault;
  #faults = [];
  #goneAt = new Map();
  #ticks;
  #cycles;
  /** The conditions chosen at random for this run's servers, by name; undefined if there are none. */
  conditions;
  /** The code and message of the latest failed acquire. */
  lastFailure;
  /** When the servers had different data although nothing was in flight, with the differences. These excuse nothing. */
  disagreements = [];
  violations = [];
  excused = [];
  counts = { attempts: 0, sections: 0, overstays: 0, refused: 0, failed: {} };

  constructor(subject) {
    this.#subject = subject;
    this.#ticks = subject.jobs && new TickRules(subject.jobs);
    this.#cycles = subject.cycles && new CycleRules(subject);
  }

  /** How many ticks were due, if sections are runs of jobs. */
  get ticks() {
    return this.#ticks?.counts;
  }

  /** How many callers were refused because of a cycle, and how many waited in vain, if clients record this. */
  get cycles() {
    return this.#cycles?.counts;
  }

  /** The faults, with what happened between each one and the next. */
  get faults() {
    return this.#faults;
  }

  observe(entry) {
    this['_' + entry.event]?.(entry, this.#ops.get(entry.op), this.#key(entry.key));
    const op = this.#ops.get(entry.op);
    // No caller waits for its `sent` to be recorded. On a busy machine, that was 280 ms after the next claim had been
    // made.
    if (op && entry.event !== 'sent') op.before = entry.at;
  }

  _disagreement({ at, disagreement }) {
    this.disagreements.push({ at, disagreement });
  }

  _head({ at, wall }) {
    this.#ticks?.start(at, wall);
  }

  _begin({ at, fault: name, of, target, settle }) {
    this.#fault = {
      name,
      of,
      target,
      settle,
      begin: at,
      end: Infinity,
      sections: 0,
      overstays: 0,
      refused: 0,
      violations: 0,
      recovering: new Set([...this.#keys].flatMap(([key, { isExtra }]) => (isExtra ? [] : [key]))),
    };
    this.#faults.push(this.#fault);
  }

  _end({ at }) {
    this.#fault.end = at;
  }

  /** No new attempts start after this, so a key that hasn't been entered yet doesn't count for recovery. */
  _quiet({ at }) {
    this.#fault?.recovering.clear();
    for (const { key, what } of this.#ticks?.quiet(at, this.#faults) ?? []) {
      this.#violation('missed', at, { key, op: 'nobody' }, what);
    }
  }

  /** Recorded before the client calls `acquire()`. */
  _attempt({ at, op, key, mode, limit, weight, wait, isExtra }, _, state) {
    this.counts.attempts += 1;
    this.#ticks?.fired(at, key);
    // No other fault uses the key, so no recovery depends on it.
    state.isExtra = isExtra;
    this.#ops.set(op, {
      op,
      key,
      mode,
      limit,
      weight,
      crowds: [],
      passedBy: [],
      overtakenByCohort: new Map(),
      worker: op.split('.')[0],
      startedAt: at,
      before: at,
      claimedUntil: 0,
      floor: state.largest,
    });
    // A caller that tries once without waiting isn't queued.
    if (wait !== 0) state.waiting.add(op);
  }

  /** Recorded after the client called `acquire()`, so by this time the caller is queued. */
  _sent({ at }, op) {
    if (op) op.sentAt = at;
  }

  _failed({ at, op: id, code, reason, never, unexpected }, op, state) {
    this.lastFailure = reason === undefined ? code : `${code}: ${reason}`;
    state.waiting.delete(id);
    this.#ops.delete(id);
    state.movedAt.set(op.worker, at);
    const unentered = Math.min(at - op.startedAt, at - (state.enteredAt ?? -Infinity));
    if (code === 'LOCK_BUSY' && unentered > this.#subject.recovery + LONGEST_FAULT) {
      this.#violation('stuck', at, op, `nobody entered for ${Math.round(unentered)} ms`);
    }
    this.counts.failed[code] = (this.counts.failed[code] ?? 0) + 1;
    if (code === never) this.#violation('unexpected', at, op, `${code}, which its situation excludes`);
    if (unexpected) this.#violation('unexpected', at, op, unexpected);
  }

  /** Recorded before a client that holds locks waits for another lock. */
  _waits(entry) {
    this.#cycles.begun(entry.at, entry);
  }

  /** Recorded when that wait is over. */
  _waited(entry) {
    const found = this.#cycles.ended(entry.at, entry, this.#faults);
    if (found) this.#violation(found.rule, entry.at, { op: entry.wait, key: entry.key }, found.what);
  }

  _enter(entry, op, state) {
    const { at, accepted, token } = entry;
    state.waiting.delete(op.op);
    if (this.#ticks) this.#checkTick(entry);
    op.token = token === null ? null : BigInt(token);
    this.#checkToken(at, op, accepted, state);
    this.#countCohort(at, op, state);
    this.#checkOrder(at, op, state);
    state.movedAt.set(op.worker, at);
    if (op.token !== null && op.token > state.largest) state.largest = op.token;
    if (!accepted) {
      this.#countRefused();
      // The holder with the larger token was granted the lock later, so this caller must notice that it no longer holds
      // it.
      const later = laterHolder(op, state);
      if (later) this.#overtake(op, later.enteredAt, later);
      this.#claim(entry, op);
      return;
    }
    op.enteredAt = state.enteredAt = at;
    this.counts.sections += 1;
    if (this.#fault) {
      this.#fault.sections += 1;
      this.#recover(at, op);
    }
    // Without tokens, nothing refuses a caller that was paused before it entered. It may have held the lock before
    // those now inside, and has lost it.
    const mayBeEarlier = op.token === null && !entry.held;
    for (const other of state.inside.values()) if (conflict(op, other) && !mayBeEarlier) this.#overlap(at, other, op);
    if (op.mode === 'limited') this.#crowd(at, op, state);
    state.inside.set(op.op, op);
    if (!(state.latest[op.mode]?.token > op.token)) state.latest[op.mode] = op;
    this.#claim(entry, op);
  }

  /** If the server has forgotten a job's record, a tick may start one more time. */
  #checkTick(entry) {
    const { at, key } = entry;
    const { allows, lifetime } = this.#subject;
    const before = this.#ticks.lastBegunAt(key);
    const what = this.#ticks.begun(at, entry);
    if (what === undefined) return;
    const loss = this.#faults.find(({ name, end }) => allows[name]?.includes('twice') && end + lifetime >= before);
    if (loss) this.excused.push({ rule: 'twice', at, op: entry.op, key, what, under: loss.name });
    else this.#violation('twice', at, entry, what);
  }

  /** The subject has recovered once each key has been entered after the fault. */
  #recover(at, { key }) {
    const { end, recovering } = this.#fault;
    if (at > end && recovering.delete(key) && recovering.size === 0) this.#fault.recovery = at - end;
  }

  _write(entry, op) {
    this._check(entry, op);
    if (!entry.accepted) return this.#countRefused();
    const { overtakenBy } = op;
    if (overtakenBy === undefined) return;
    // A holder that knows of its loss and writes anyway demonstrates what tokens are worth. If it or the later holder
    // has no token, it demonstrates nothing. Without a token, nothing stops a write delayed by a pause either.
    const isJudged = op.token === null ? entry.held && claimsTooLong(op) : entry.held || overtakenBy.token !== null;
    if (isJudged) this.#violation('stale', entry.at, op, `after ${overtakenBy.op}`);
  }

  _check(entry, op) {
    this.#claim(entry, op);
  }

  _leave(entry, op, state) {
    this.#claim(entry, op);
    state.inside.delete(op.op);
  }

  _done({ at, op: id, result, signaled }, op, state) {
    if (!RELEASE_RESULTS.includes(result)) this.#violation('release', at, op, result);
    // By then, another process held the lock, and the backend knows it, unless both were granted the lock.
    const { overtakenAt, overtakenBy } = op;
    if (result === 'released' && overtakenBy && !this.#isDocumented('overlap', op, overtakenAt, overtakenAt)) {
      this.#violation('release', at, op, `released, although ${overtakenBy.op} had entered`);
    }
    if (signaled === true && result !== 'lost') {
      this.#violation('signal', at, op, `the signal reported a loss, but the release says ${result}`);
    }
    // A loss that only the release detects is no longer signaled.
    if (signaled === false && result === 'lost' && op.isOver) {
      this.#violation('signal', at, op, 'lost, but the signal did not report it');
    }
    state.inside.delete(id);
    this.#ops.delete(id);
    this.#ticks?.ended(at, id, op.key);
    state.movedAt.set(op.worker, at);
  }

  /** A dead process neither waits nor claims anything. */
  _gone({ at, worker }) {
    this.#goneAt.set(worker, at);
    this.#cycles?.gone(at, worker);
    for (const [id, op] of this.#ops) {
      if (op.worker !== worker) continue;
      const state = this.#key(op.key);
      state.waiting.delete(id);
      state.inside.delete(id);
      this.#ops.delete(id);
      this.#ticks?.ended(at, id, op.key);
    }
  }

  /** How many sessions of a killed process the server had. */
  _sessions({ at, of: worker, sessions }) {
    const goneAt = this.#goneAt.get(worker) ?? at;
    if (sessions === 0 || at - goneAt <= this.#subject.sessionsEndWithin) return;
    this.#violation('sessions', at, undefined, `${sessions} of ${worker}, ${Math.round(at - goneAt)} ms later`, goneAt);
  }

  _conditions({ conditions }) {
    this.conditions = conditions;
  }

  /** A violation that the coordinator observed. */
  _violation({ at, rule, what }) {
    this.#violation(rule, at, undefined, what);
  }

  #claim({ at, held, remaining, overdue }, op) {
    if (!held) {
      op.isOver = true;
      return;
    }
    if (overdue > LATE) this.#violation('late', at, op, `by ${overdue} ms`);
    op.claimedUntil = Math.max(op.claimedUntil, op.before + remaining);
    for (const crowd of op.crowds) this.#checkLimit(crowd, at);
    if (claimsTooLong(op)) {
      this.#violation('overlap', at, op, `still claimed after ${op.overtakenBy.op} had entered`, op.overtakenAt);
    }
  }

  /**
   * After `op` entered, more than the limit are inside. That is a violation if too many of them claim to hold the lock
   * at that moment, now or in a later record.
   */
  #crowd(at, op, { inside }) {
    const members = [op, ...[...inside.values()].filter(({ mode }) => mode === 'limited')];
    if (taken(members) <= op.limit) return;
    const crowd = { at, members, limit: op.limit, isReported: false };
    for (const member of members) member.crowds.push(crowd);
    this.#checkLimit(crowd, at);
  }

  #checkLimit(crowd, now) {
    const { at, members, limit, isReported } = crowd;
    // The entrant made its claim when it sent its entry; the other holders claim that moment if their last record
    // before it, or any record after it, does.
    const claiming = members.filter(
      ({ claimedUntil, before, isOver }) => claimedUntil > at || (!isOver && before > at),
    );
    if (isReported || taken(claiming) <= limit) return;
    crowd.isReported = true;
    // Report the caller that attempted first: if a fault took a lock, it was taken from a holder that is older than the
    // fault.
    const [first] = claiming.toSorted((one, other) => one.startedAt - other.startedAt);
    const names = claiming.map(({ op }) => op).join(', ');
    this.#violation('limit', now, first, `${taken(claiming)} of ${limit}: ${names}`, at);
  }

  #overtake(op, at, entrant) {
    op.overtakenAt ??= at;
    op.overtakenBy ??= entrant;
  }

  #overlap(at, holder, entrant) {
    this.#overtake(holder, at, entrant);
    // A server may notice that a killed process has died before the resource does. Whatever the process reports later
    // still counts.
    const mayBeDead = this.#fault?.name === 'worker killed' && holder.worker.startsWith(`${this.#fault.target}/`);
    // The holder made its claim at its last record.
    if (at < holder.claimedUntil && !mayBeDead)
      this.#violation('overlap', at, holder, `when ${entrant.op} entered`, at, holder.before);
    else {
      this.counts.overstays += 1;
      if (this.#fault) this.#fault.overstays += 1;
    }
  }

  /**
   * A token must be larger than the tokens of all holders that had entered before its caller's attempt began. If the
   * resource accepts it, it must also be larger than the tokens of all that entered before it.
   */
  #checkToken(at, op, accepted, { largest, latest, limitedTokens }) {
    if (op.token === null) return;
    // Concurrent holders may enter in a different order than they were granted, and readers may share a token.
    const others = Object.values(latest).filter((other) => conflict(op, other));
    const entered =
      op.mode === 'exclusive' ? largest : others.reduce((most, { token }) => (token > most ? token : most), -1n);
    const floor = accepted && entered > op.floor ? entered : op.floor;
    const isTaken = op.mode === 'limited' && limitedTokens.has(op.token);
    if (op.mode === 'limited') limitedTokens.add(op.token);
    const tooSmall = isTaken || (op.mode === 'shared' ? op.token < floor : op.token <= floor);
    if (tooSmall) this.#violation('token', at, op, `${op.token} after ${floor}`);
  }

  #checkOrder(at, op, state) {
    if (!this.#subject.fair) return;
    const queuedAt = this.#entrantQueuedAt(at, op, state);
    // A later fault may have cost the waiter its grant, in which case its token is a later one.
    const isCalm = op.sentAt >= this.#calmSince(op);
    const passing = isCalm && op.passedBy.find(({ token }) => token < op.token);
    if (passing) this.#violation('overtaken', at, op, `by ${passing.op}`);
    for (const id of state.waiting) {
      const waiter = this.#ops.get(id);
      if (!waiter?.sentAt || waiter.sentAt < this.#calmSince(waiter)) continue;
      const isLater = queuedAt - this.#waiterQueuedAt(waiter, op, state) > CERTAINLY_LATER;
      if (!isLater) continue;
      if (conflict(op, waiter)) {
        const mayPass = this.#isFirstCohort(op, waiter, state) || this.#joinsOlder(op, waiter, state);
        if (!mayPass) this.#violation('overtaken', at, waiter, `by ${op.op}`);
      }
      // Concurrent holders enter in any order. For limited holders, the tokens show who was granted first.
      else if (op.mode === 'limited') waiter.passedBy.push(op);
    }
  }

  /** Callers of one process that enter consecutively, with no other process in between, are one cohort. */
  #countCohort(at, { worker }, state) {
    const { cohort } = state;
    if (cohort?.worker === worker && at - cohort.beganAt <= COHORT) return;
    state.cohort = { worker, beganAt: at };
  }

  /**
   * If a process may admit its next callers under the same grant, each waiter may be overtaken by one cohort of every
   * other process.
   */
  #isFirstCohort(op, waiter, { cohort }) {
    if (this.#subject.fair !== 'cohorts' || op.worker === waiter.worker) return false;
    const known = waiter.overtakenByCohort.get(op.worker);
    waiter.overtakenByCohort.set(op.worker, known ?? cohort);
    return known === undefined || known === cohort;
  }

  /**
   * A process has a single place in the queue, so a waiter isn't queued while older callers of its process are. When one
   * of these is granted a lock that others may share, the queue grants it to them too, as far as they fit. They may
   * enter before it does.
   */
  #joinsOlder(op, waiter, { inside, waiting }) {
    if (this.#subject.fair === true) return false;
    const callers = [...inside.values(), ...Array.from(waiting, (id) => this.#ops.get(id))];
    const isOlder = (other) => other?.worker === waiter.worker && other.startedAt < waiter.startedAt;
    return callers.some((other) => isOlder(other) && !conflict(op, other));
  }

  /**
   * When the entering caller was queued. If a process has a single place in the queue, all its waiting readers enter
   * together with the first of them, so they count as queued at its time. A reader that arrives after that entry does
   * not.
   */
  #entrantQueuedAt(at, op, { groups, waiting }) {
    if (this.#subject.fair === true || op.mode !== 'shared') return op.startedAt;
    let group = groups.get(op.worker);
    if (group?.token !== op.token || op.startedAt > group.enteredAt) {
      const readers = [...waiting]
        .map((id) => this.#ops.get(id))
        .filter((each) => each && each.mode === 'shared' && each.worker === op.worker);
      const queuedAt = Math.min(op.startedAt, ...readers.map(({ startedAt }) => startedAt));
      group = { token: op.token, enteredAt: at, queuedAt };
      groups.set(op.worker, group);
    }
    return Math.min(group.queuedAt, op.startedAt);
  }

  /**
   * If a process has a single place in the queue, its next caller is queued when the previous one has entered or left.
   */
  #waiterQueuedAt(waiter, op, state) {
    const isQueued = this.#subject.fair === true || (this.#subject.fair === 'cohorts' && waiter.mode !== 'limited');
    if (isQueued || waiter.worker === op.worker) return waiter.sentAt;
    return Math.max(waiter.sentAt, state.movedAt.get(waiter.worker) ?? 0);
  }

  /**
   * When the last fault that affected this waiter ended. A fault of one worker doesn't affect the order of the others.
   */
  #calmSince({ worker }) {
    const affecting = this.#faults.findLast(({ of, target }) => of !== 'worker' || worker.startsWith(`${target}/`));
    const { settle = 0, reconnect = 0 } = this.#subject;
    return affecting ? affecting.end + Math.max(settle, reconnect) : 0;
  }

  #countRefused() {
    this.counts.refused += 1;
    if (this.#fault) this.#fault.refused += 1;
  }

  #violation(rule, at, op, what, since = at, claimedAt = at) {
    const fault = this.#fault;
    const violation = {
      rule,
      at,
      op: op?.op,
      key: op?.key,
      what,
      under: fault && since <= fault.end + this.#subject.lifetime ? fault.name : 'no fault',
    };
    if (this.#isDocumented(rule, op, at, since, claimedAt)) {
      this.excused.push(violation);
      return;
    }
    this.violations.push(violation);
    if (fault) fault.violations += 1;
  }

  #isDocumented(rule, op, at, since, claimedAt = at) {
    const { allows, lifetime, settle = 0, noticedWithin = Infinity, lostAtBegin = {} } = this.#subject;
    return documentedAs(rule, op).some((documented) =>
      this.#faults.some((fault) => {
        if (since < fault.begin || !allows[fault.name]?.includes(documented)) return false;
        const noticed = lostAtBegin[fault.name];
        // This fault took the locks when it began. Their holders must have noticed then, not when other callers are
        // granted the locks.
        if (noticed !== undefined)
          return op.startedAt <= fault.begin && claimedAt <= fault.begin + noticed && since <= fault.begin + lifetime;
        // A holder that lost its lock to a fault must notice in time, whatever fault occurs in between.
        if (since > fault.end + lifetime || at - since > noticedWithin) return false;
        // A fault can't take a lock from a caller that made its request after the fault. The other of the two holders
        // may have made its request later.
        return documented !== 'overlap' || op.startedAt <= fault.end + (fault.settle ?? settle);
      }),
    );
  }

  #key(key) {
    if (key === undefined) return undefined;
    let state = this.#keys.get(key);
    if (!state) {
      state = {
        inside: new Map(),
        waiting: new Set(),
        groups: new Map(),
        movedAt: new Map(),
        largest: -1n,
        latest: {},
        limitedTokens: new Set(),
      };
      this.#keys.set(key, state);
    }
    return state;
  }
}

/** Whether it claimed to hold the lock after a later holder had entered. */
const claimsTooLong = ({ claimedUntil, before, overtakenAt }) =>
  overtakenAt !== undefined && (claimedUntil > overtakenAt || before > overtakenAt);

/** The names under which a subject may waive the rule. */
function documentedAs(rule, op) {
  // Exceeding a limit corresponds to two holders of an exclusive lock.
  if (rule === 'limit') return ['overlap'];
  // If two hold the lock and one of them has no token (a limited holder, for example), nothing refuses what either
  // writes.
  const isUnstoppable = rule === 'stale' && (op.token === null || op.overtakenBy?.token === null);
  return isUnstoppable ? ['stale', 'overlap'] : [rule];
}

/** The conflicting holder that entered with a larger token, if there are tokens. */
const laterHolder = (op, { latest }) =>
  Object.values(latest).find((other) => conflict(op, other) && other.token > op.token);

const conflict = (one, other) => one.mode === 'exclusive' || one.mode !== other.mode;

const taken = (ops) => ops.reduce((sum, { weight }) => sum + weight, 0);
