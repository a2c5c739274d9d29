import type { Lock } from '../../lib/api/lock.js';
import type { LockMode } from '../../lib/api/lock-mode.js';
import { KeyLayout } from '../../lib/providers/redis/key-layout.js';
import { DeadlockJudge } from './deadlock-judge.js';
import { type FailoverJudge, type MemberGrant } from './failover-judge.js';
import type { JobJudge } from './job-judge.js';
import { EPOCH, type Machine } from './machine.js';
import type { QuorumJudge } from './quorum-judge.js';
import type { RedisModel } from './redis-model.js';
import { ServerJudge } from './server-judge.js';
import type { Timeline } from './timeline.js';

/** What a caller requests. */
export interface Terms {
  readonly place: number;
  /** The number of the caller's process. */
  readonly process: number;
  readonly machine: Machine;
  readonly keys: readonly string[];
  readonly mode: LockMode;
  readonly limit: number;
  readonly lease: number;
  readonly minHold: number;
  readonly maxHold: number;
  readonly wait: number;
  /**
   * Whether the task never checks that it still holds the lock, which would read the clock. It learns of a loss only
   * from the signal.
   */
  readonly isQuiet: boolean;
}

/** A call, from its start until its task ends or it is refused. */
export interface Call extends Terms {
  readonly name: string;
  readonly startedAt: number;
  enteredAt: number | undefined;
  /** The holder that independent nodes vote for. */
  holder: string | undefined;
  lock: Lock | undefined;
  /** Whether the lock's signal has called its listener. */
  isSignaled: boolean;
  /** The longest and the shortest lease that were in effect. */
  longest: number;
  shortest: number;
  /** Since when its loss has not been reported. */
  lapsedAt: number | undefined;
  isLost: boolean;
  isReported: boolean;
  /** When its signal was aborted. */
  abortedAt: number | undefined;
  /** When another caller got its lock because the server had forgotten it. */
  replacedAt: number | undefined;
  /** The call in which it is nested. */
  readonly outer: Call | undefined;
}

export function newCall(terms: Terms, name: string, startedAt: number, outer?: Call): Call {
  return {
    ...{ ...terms, name, startedAt, outer },
    ...{ enteredAt: undefined, lock: undefined, isSignaled: false, longest: terms.lease, shortest: terms.lease },
    ...{ lapsedAt: undefined, isLost: false, isReported: false, abortedAt: undefined },
    ...{ holder: undefined, replacedAt: undefined },
  };
}

/** The maximum time between an action and its effect in a healthy world, in ms. */
export interface Bounds {
  /** Until a free lock is taken. */
  readonly handoff: number;
  /** Until everything has recovered after a fault. */
  readonly recovery: number;
  /** Until each affected process has had the lock for a provisional lease, and no other process waits for them. */
  readonly provisional: number;
  /** The shortest lease that survives a slow network. */
  readonly renewable: number;
  readonly commandTimeout: number;
}

/** What a judge knows about the fleet. */
export interface JudgedFleet {
  /** The place of a process that has not crashed, by its number. */
  readonly placeOf: (process: number) => number | undefined;
  /** The judge of the job that all processes schedule. */
  readonly jobs: JobJudge | undefined;
  /** Whether the locks are in memory, without a server. */
  readonly isInMemory: boolean;
  /** The judge of the independent nodes, if these store the locks. */
  readonly quorum: QuorumJudge | undefined;
  /** The judge of the failover provider, if it chooses the server. */
  readonly failover: FailoverJudge | undefined;
}

/** A lock that is retained after its task. */
interface Retained {
  readonly key: string;
  readonly holder: string;
  readonly mode: LockMode;
  /** The earliest possible time of the grant. */
  readonly grantedAt: number;
  /** Before this time, no other caller gets the key. */
  readonly until: number;
  /** From this time on, other callers get it. */
  readonly freeAt: number;
}

/**
 * By how many ms tokens may exceed the server's clock: a handoff reserves tokens for a cohort, and each has its own µs.
 */
const AHEAD = 5;
/** How much faster than true time the clock of a node that retains a key may run. */
const DRIFT = 0.01;
const COHORT = 64n;
const LAYOUT = new KeyLayout('lock');
/** How late a process's timer may be noticed. */
const LATE = 60;
const LOOK_EVERY = 10;

/**
 * Decides whether the locks keep their promises. Unlike any process, it sees all processes and the server at the same
 * true time.
 */
export class Judge {
  readonly violations: string[] = [];
  readonly #calls = new Set<Call>();
  readonly #holders = new Map<string, Set<Call>>();
  readonly #idleSince = new Map<string, number>();
  readonly #retained: Retained[] = [];
  readonly #tokens = new Map<string, bigint>();
  /** Until when faults directly affect the fleet. */
  #disturbedUntil = -Infinity;
  /** Until when the lock of a crashed process may remain. */
  #orphanedUntil = -Infinity;
  /** When data was last lost. */
  #lostAt = -Infinity;
  /** Until when a process recovers from a fault of its own, by place. */
  readonly #troubled = new Map<number, number>();
  readonly #deadlocks = new DeadlockJudge(this.#calls, (violation) => {
    this.report(violation);
  });
  /** `undefined` for independent servers: nodes have no queue, and several members have one. */
  readonly #server: ServerJudge | undefined;
  #isOver = false;

  constructor(
    private readonly timeline: Timeline,
    private readonly modelOf: (key: string) => RedisModel,
    private readonly bounds: Bounds,
    private readonly fleet: JudgedFleet,
  ) {
    if (fleet.quorum || fleet.failover) return;
    this.#server = new ServerJudge(modelOf, (violation) => {
      this.report(violation);
    });
  }

  get jobs(): JobJudge | undefined {
    return this.fleet.jobs;
  }

  /** Examines everything from now until the end. */
  watch(): void {
    if (this.#isOver) return;
    this.#look();
    this.timeline.in(LOOK_EVERY, () => {
      this.watch();
    });
  }

  end(): void {
    this.#isOver = true;
  }

  disturbed(until: number): void {
    this.#disturbedUntil = Math.max(this.#disturbedUntil, until);
  }

  /** A process has crashed: what it held ends with its lease. */
  crashed(place: number): void {
    for (const call of [...this.#calls]) {
      if (call.place !== place) continue;
      if (call.lock) this.#retain(call);
      this.#leave(call);
    }
  }

  /** A fault affects a process until then. Others wait for what it holds, but no longer than that. */
  troubled(place: number, until: number, longest: number): void {
    const { now } = this.timeline;
    this.#troubled.set(place, Math.max(until + this.bounds.recovery, this.#troubled.get(place) ?? 0));
    // A node keeps the vote of a closed connection until its lease ends.
    this.orphaned(this.fleet.quorum ? until + longest : Math.min(until, now + longest));
    // At that time, commands sent earlier are executed and undone.
    this.timeline.at(until, () => {
      this.disturbed(until);
    });
  }

  /** A fault affects a process. */
  processHit(place: number, until: number, longest: number): void {
    this.fleet.failover?.processHit(place, this.timeline.now, until);
    this.troubled(place, until, longest);
  }

  /** A fault affects all processes. */
  allHit(until: number): void {
    this.fleet.failover?.processHit(undefined, this.timeline.now, until);
    this.disturbed(until);
  }

  /**
   * A fault affects an independent server, for one process or for all. If it affects only a minority of the nodes, or
   * only the standby of a failover provider, no process notices.
   */
  nodeHit(index: number, until: number, place?: number): void {
    this.fleet.failover?.hit(index, this.timeline.now, until, place);
    this.fleet.quorum?.hit(index, this.timeline.now, until + this.bounds.recovery, place);
  }

  /** So many nodes are affected that this process, or every process, has no majority. */
  withoutMajority(until: number, place: number | undefined): void {
    if (place === undefined) this.disturbed(until);
    else this.#troubled.set(place, Math.max(until, this.#troubled.get(place) ?? 0));
  }

  orphaned(until: number): void {
    this.#orphanedUntil = Math.max(this.#orphanedUntil, until);
  }

  /** A node is about to lose this key, or everything. */
  lostDataOf(node: RedisModel, key?: string): void {
    const { quorum, failover } = this.fleet;
    failover?.loses(node, this.timeline.now);
    if (failover) return;
    if (quorum === undefined) {
      this.lostData();
      return;
    }
    // Only the clocks of the nodes are left, and they may be wrong.
    if (!quorum.loses(node, this.timeline.now, key)) this.#tokens.clear();
    const kept = this.#retained.filter((each) => !quorum.isForgiving || quorum.isRetained(each.holder, each.key, node));
    this.#retained.splice(0, this.#retained.length, ...kept);
  }

  /** The server has lost locks. */
  lostData(): void {
    this.#lostAt = this.timeline.now;
    this.#retained.length = 0;
    this.#server?.lostData(this.timeline.now);
    this.fleet.jobs?.lostData();
  }

  /** The server has executed this process's script call. */
  executed(process: number, locks: readonly string[]): void {
    this.#server?.executed(process, locks, this.timeline.now);
    this.fleet.jobs?.executed();
    this.fleet.failover?.executed(this.timeline.now);
  }

  begins(call: Call): void {
    this.#calls.add(call);
  }

  /** The call's task starts. `signal` must abort when the lock is lost. */
  enters(call: Call, lock: Lock, signal = lock.signal): void {
    call.lock = lock;
    signal.addEventListener('abort', () => {
      call.isSignaled = true;
    });
    call.enteredAt = this.timeline.now;
    call.holder = this.fleet.quorum?.holderOf(call.process, call.keys[0] ?? '');
    if (!call.isQuiet && !lock.isHeld())
      this.report(`${call.name} starts its task without holding ${call.keys.join()}`);
    this.#checkOrder(call);
    for (const key of call.keys) {
      this.#checkEntry(call, lock, key);
      this.#holdersOf(key).add(call);
    }
  }

  /** The task has ended, and the lock is about to be released. */
  leaves(call: Call): void {
    if (call.lock && !call.lock.isHeld()) this.#loses(call);
    this.#retain(call);
    this.#leave(call);
  }

  /** The call was refused, or is over. */
  ends(call: Call): void {
    this.#leave(call);
  }

  refusedAsDeadlock(call: Call): void {
    this.#deadlocks.refused(call, this.timeline.now);
  }

  /** The call failed as if the server were down. A healthy server must respond. */
  refusedAsUnavailable(call: Call): void {
    if (this.isHealthySince(call.startedAt, call.place))
      this.report(`${call.name} failed as if the server were down, without any fault`);
  }

  report(violation: string): void {
    if (this.violations.length < 20) this.violations.push(`${this.timeline.now.toFixed(1)} ms: ${violation}`);
  }

  #isTroubled(place: number): boolean {
    return (this.#troubled.get(place) ?? -Infinity) > this.timeline.now;
  }

  /** Whether nothing has disturbed this process since that time or shortly before it. */
  isHealthySince(time: number, place: number): boolean {
    return !this.#isTroubled(place) && time > Math.max(this.#disturbedUntil, this.#lostAt) + this.bounds.recovery;
  }

  #leave(call: Call): void {
    this.#calls.delete(call);
    for (const key of call.keys) this.#holders.get(key)?.delete(call);
  }

  #holdersOf(key: string): Set<Call> {
    let holders = this.#holders.get(key);
    if (holders === undefined) this.#holders.set(key, (holders = new Set()));
    return holders;
  }

  /** Whether the call holds this key under a grant that the server has forgotten, and need not know that yet. */
  #isExcused(call: Call, key: string): boolean {
    if (call.lock === undefined) return false;
    const { quorum } = this.fleet;
    if (quorum) return quorum.isBroken(call.holder ?? '', call.longest, this.timeline.now);
    const grant = this.#memberGrant(call, key);
    const lostAt = grant ? (this.fleet.failover?.lostAt(grant) ?? -Infinity) : this.#lostAt;
    if (lostAt === -Infinity) return false;
    const grantedAt = grant?.at ?? grantedAtOf(call.lock, key) ?? call.startedAt;
    return grantedAt <= lostAt + AHEAD && this.timeline.now <= lostAt + call.longest;
  }

  #checkEntry(call: Call, lock: Lock, key: string): void {
    const isForgiving = this.fleet.quorum?.isForgiving ?? true;
    const holders = [...this.#holdersOf(key)].filter(
      (other) => !other.machine.isDead && this.#counts(other, key) && !isOuter(other, call),
    );
    const epoch = this.#memberGrant(call, key)?.epoch;
    // A switch ends even locks that their member has lost.
    const isSameEpoch = (other: Call) => this.#memberGrant(other, key)?.epoch === epoch;
    const others = holders.filter((other) => !isForgiving || !isSameEpoch(other) || !this.#isExcused(other, key));
    for (const other of holders) {
      const isExclusive = call.mode === 'exclusive' || other.mode === 'exclusive';
      if (isExclusive && !others.includes(other)) other.replacedAt ??= this.timeline.now;
    }
    if (isForgiving && this.#isExcused(call, key)) return;
    if (call.mode === 'limited') {
      if (others.length >= call.limit) this.report(`${others.length + 1} hold "${key}", whose limit is ${call.limit}`);
    } else {
      const other = others.find((each) => call.mode !== 'shared' || each.mode !== 'shared');
      if (other) this.report(`${call.name} got "${key}" (${call.mode}) while ${other.name} holds it (${other.mode})`);
    }
    this.#checkToken(call, lock, key);
    this.#checkRetained(call, lock, key);
  }

  /**
   * Whether the call relies on its lock. A quiet call isn't queried: it relies on the lock if the server stores it for
   * this call.
   */
  #counts(call: Call, key: string): boolean {
    const { lock, isSignaled, isQuiet, machine, enteredAt = 0 } = call;
    if (lock === undefined || machine.isSuspended) return false;
    // A timer doesn't notice that the machine was suspended.
    if (isQuiet && machine.wokenAt > enteredAt) return false;
    return isQuiet && !this.fleet.isInMemory ? !isSignaled && this.#hasRecord(call, lock, key) : lock.isHeld();
  }

  /** In a healthy world, nothing is lost. */
  #loses(call: Call): void {
    const { isLost, name, keys, startedAt, maxHold, shortest, place } = call;
    call.isLost = true;
    if (isLost || maxHold !== Infinity || shortest < this.bounds.renewable) return;
    if (this.isHealthySince(startedAt, place)) this.report(`${name} lost ${keys.join()}, without any fault`);
  }

  /** The callers of one process that request the same key enter in the order of their arrival. */
  #checkOrder(call: Call): void {
    if (!isPlain(call)) return;
    for (const other of this.#calls) {
      if (other === call) return;
      if (other.machine !== call.machine || !isPlain(other) || other.keys[0] !== call.keys[0]) continue;
      if (other.lock === undefined && other.abortedAt === undefined)
        this.report(
          `${call.name} got "${call.keys.join()}" before ${other.name} of the same process, which arrived earlier`,
        );
    }
  }

  #checkToken(call: Call, lock: Lock, key: string): void {
    const token = lock.fencingTokens.get(key);
    if (call.mode === 'limited') return;
    const { quorum } = this.fleet;
    // The token was being granted while a node lost its counter.
    if (quorum && quorum.requestedAt(call.holder ?? '') <= quorum.tokensLostAt) return;
    if (token === undefined || token === null) {
      this.report(`${call.name} got "${key}" without a token`);
      return;
    }
    const last = this.#tokens.get(key) ?? 0n;
    if (token < last || (call.mode === 'exclusive' && token === last)) {
      this.report(`${call.name} got "${key}" with token ${token} after ${last}`);
    }
    if (token > last) this.#tokens.set(key, token);
  }

  #checkRetained(call: Call, lock: Lock, key: string): void {
    // A node may vote long after its vote was requested.
    const grantedAt = this.fleet.quorum ? this.timeline.now : grantedAtOf(lock, key);
    if (grantedAt === undefined) return;
    for (const retained of this.#retained) {
      if (retained.key !== key || (retained.mode === 'shared' && call.mode === 'shared')) continue;
      if (grantedAt > retained.grantedAt && grantedAt < retained.until - AHEAD) {
        this.report(`${call.name} got "${key}" ${(retained.until - grantedAt).toFixed(0)} ms before its minHold ended`);
      }
    }
  }

  #retain(call: Call): void {
    const { minHold, keys, holder = '', mode, lock, startedAt, enteredAt = this.timeline.now } = call;
    const { quorum } = this.fleet;
    if (minHold === 0 || lock === undefined) return;
    for (const key of keys) {
      // Readers share the token of the first of them.
      const grantedAt = Math.max(startedAt, quorum?.requestedAt(holder) ?? grantedAtOf(lock, key) ?? startedAt);
      // The server doesn't retain what it has forgotten.
      const isLost = quorum ? !quorum.hasMajority(holder, key) : grantedAt <= this.#lostAt + AHEAD;
      if (isLost) continue;
      const until = grantedAt + (quorum ? (1 - DRIFT) * minHold : minHold);
      this.#retained.push({ key, holder, mode, grantedAt, until, freeAt: enteredAt + minHold });
    }
  }

  #look(): void {
    const { now } = this.timeline;
    for (const call of this.#calls) {
      if (call.machine.isDead) continue;
      if (call.lock === undefined) this.#lookAtWaiter(call, now);
      else this.#lookAtHolder(call, call.lock, now);
    }
    const troubledUntil = Math.max(this.#disturbedUntil, this.#orphanedUntil, ...this.#troubled.values());
    const healthySince = troubledUntil + this.bounds.recovery;
    this.#deadlocks.look(now, healthySince);
    this.fleet.jobs?.look(now, healthySince);
    const keys = new Set([...this.#calls].flatMap((call) => call.keys));
    const isHealthy = (process: number) => {
      const place = this.fleet.placeOf(process);
      return place !== undefined && this.isHealthySince(now, place);
    };
    for (const key of keys) {
      this.#lookAtKey(key, now);
      this.#server?.look(key, now, isHealthy, this.bounds.handoff);
    }
    this.#lookAtNodes(now, healthySince);
    for (const key of this.#idleSince.keys()) if (!keys.has(key)) this.#idleSince.delete(key);
  }

  #lookAtHolder(call: Call, lock: Lock, now: number): void {
    const { isQuiet, isSignaled, maxHold, enteredAt = now, machine } = call;
    const hasSlept = machine.wokenAt > enteredAt;
    if (machine.isSuspended || (isQuiet && hasSlept)) return;
    const missing = call.keys.find((key) => !this.#isExcused(call, key) && !this.#hasRecord(call, lock, key));
    const isOver = now - enteredAt > 1.01 * maxHold || (isQuiet ? missing !== undefined : !lock.isHeld());
    if (!isQuiet && !isOver && missing !== undefined) this.#blame(call, missing);
    if (isQuiet ? isSignaled : isOver) this.#loses(call);
    if (!isQuiet && !isOver && now > (call.replacedAt ?? Infinity) + (1 + DRIFT) * call.longest) this.#comesBack(call);
    // A paused process can't report, and needs a moment after the pause. After a suspension, it first verifies the lock.
    if (machine.isPaused || hasSlept || isSignaled || !isOver) call.lapsedAt = undefined;
    else call.lapsedAt ??= now;
    if (call.lapsedAt !== undefined && now - call.lapsedAt > LATE && !call.isReported) {
      call.isReported = true;
      this.report(`${call.name} no longer holds ${call.keys.join()}, but its signal is not aborted`);
    }
  }

  #blame(call: Call, key: string): void {
    if (call.isReported) return;
    call.isReported = true;
    this.report(`${call.name} relies on "${key}", which the server does not store for it`);
  }

  #comesBack(call: Call): void {
    if (call.isReported) return;
    call.isReported = true;
    this.report(`${call.name} still relies on ${call.keys.join()}, which another caller has acquired since`);
  }

  /** Whether the server stores the lock for this holder: the key has its token. */
  #hasRecord(call: Call, lock: Lock, key: string): boolean {
    if (this.fleet.isInMemory) return true;
    const { quorum } = this.fleet;
    if (quorum) return quorum.hasMajority(call.holder ?? '', key);
    const name = LAYOUT.lockOf(key);
    const grant = this.#memberGrant(call, key);
    const text = (grant?.model ?? this.modelOf(name)).textAt(name);
    if (text === undefined || (grant && this.fleet.failover?.hasEnded(grant, this.timeline.now))) return false;
    const token = grant?.token ?? lock.fencingTokens.get(key);
    if (call.mode === 'limited' || token === undefined || token === null) return true;
    const kept = /\d{16}/.exec(text)?.[0];
    if (kept === undefined) return false;
    return call.mode === 'shared' ? BigInt(kept) === token : isBehind(token, BigInt(kept));
  }

  /** Which member of the failover provider granted this. */
  #memberGrant({ lock }: Call, key: string): MemberGrant | undefined {
    const token = lock?.fencingTokens.get(key);
    return token ? this.fleet.failover?.grantOf(token) : undefined;
  }

  #lookAtNodes(now: number, healthySince: number): void {
    const isCalled = (process: number, key: string) =>
      [...this.#calls].some((call) => call.process === process && call.keys.includes(key));
    this.fleet.quorum?.look(now, now > healthySince, isCalled, this.bounds.handoff);
  }

  #lookAtWaiter(call: Call, now: number): void {
    // A call for several keys first releases the keys that it has.
    const bound = call.keys.length > 1 ? 2 * this.bounds.commandTimeout + this.bounds.recovery : LATE;
    if (call.abortedAt !== undefined && !call.isReported && !call.machine.isPaused && now - call.abortedAt > bound) {
      call.isReported = true;
      this.report(`${call.name} still waits ${(now - call.abortedAt).toFixed(0)} ms after its signal was aborted`);
    }
    const patience = Math.max(call.wait, 1_000 + this.bounds.commandTimeout) + this.bounds.commandTimeout + 1_500;
    if (call.isReported || now - call.startedAt < patience || now < this.#disturbedUntil + patience) return;
    if (this.#isTroubled(call.place)) return;
    call.isReported = true;
    this.report(
      `${call.name} has no result ${(now - call.startedAt).toFixed(0)} ms after it started, with a wait of ${call.wait} ms`,
    );
  }

  /** A lock that is free, or has room below its limit, must not stay so while callers wait only for it. */
  #lookAtKey(key: string, now: number): void {
    const calls = [...this.#calls].filter((call) => call.keys.includes(key));
    const retained = this.#retained.filter((each) => each.key === key && each.freeAt > now).length;
    const taken = retained + calls.filter((call) => call.lock ?? (call.outer || call.keys.length > 1)).length;
    const room = calls[0]?.mode === 'limited' ? calls[0].limit : 1;
    const first = calls
      .filter((call) => call.lock === undefined && call.wait > 0 && !this.#isTroubled(call.place))
      .reduce((first, { startedAt }) => Math.min(first, startedAt), Infinity);
    if (taken >= room || first === Infinity) {
      this.#idleSince.delete(key);
      return;
    }
    const since = Math.max(
      this.#idleSince.get(key) ?? now,
      // Below a limit there may always be room, though each caller gets the lock in time.
      first,
      this.#disturbedUntil + this.bounds.recovery,
      this.#orphanedUntil + this.bounds.provisional,
    );
    this.#idleSince.set(key, since);
    if (now - since <= this.bounds.handoff) return;
    const waiting = calls.filter((call) => call.lock === undefined).map(({ name }) => name);
    this.report(`"${key}" has been free for ${(now - since).toFixed(0)} ms, but was not granted to ${waiting.join()}`);
    this.#idleSince.set(key, Infinity);
  }
}

/** Whether a token belongs to the block whose last token the server stores. */
function isBehind(token: bigint, kept: bigint): boolean {
  return kept >= token && kept - token < COHORT;
}

/** Whether the call waits in the single queue of its key. */
function isPlain({ keys, outer }: Call): boolean {
  return keys.length === 1 && outer === undefined;
}

/** Whether a call is nested in this one, and has re-entered its lock. */
function isOuter(other: Call, call: Call): boolean {
  for (let outer = call.outer; outer !== undefined; outer = outer.outer) if (outer === other) return true;
  return false;
}

/**
 * The server's time of the grant, in true time: its token is at least that. `undefined` for a grant without a token.
 */
function grantedAtOf(lock: Lock, key: string): number | undefined {
  const token = lock.fencingTokens.get(key);
  return token === undefined || token === null ? undefined : Number(token) / 1_000 - EPOCH;
}
