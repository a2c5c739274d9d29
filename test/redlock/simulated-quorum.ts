import { LockManager } from '../../lib/core/lock-manager.js';
import type { Clock } from '../../lib/api/clock.js';
import { silentLogger } from '../../lib/api/logger.js';
import type { Lock } from '../../lib/api/lock.js';
import { RedlockLockProvider } from '../../lib/providers/redlock/index.js';
import { RedlockKeyLayout } from '../../lib/providers/redlock/key-layout.js';
import { SeededRandom } from '../../lib/provider-kit/seeded-random.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { DriftingClock, sleep } from '../simulation/drifting-clock.js';
import { randomOfProcess } from '../simulation/process-random.js';
import { SimulatedNode, type Weather, Wire } from './simulated-network.js';

/** Bad weather between some processes and some nodes. */
export interface Incident {
  readonly at: number;
  readonly lasts: number;
  readonly nodes: readonly number[];
  readonly processes: readonly number[];
  readonly weather: Weather;
}

/** Nodes lose their data, one after another: as long as a majority still has its counters. */
export interface Loss {
  readonly at: number;
  readonly nodes: readonly number[];
  readonly manner: 'restart' | 'flush';
}

export interface Plan {
  readonly seed: number;
  /** How fast the clock of each process runs. */
  readonly rates: readonly number[];
  readonly nodes: readonly { readonly rate: number; readonly skew: number }[];
  readonly delayedRestart: boolean;
  readonly incidents: readonly Incident[];
  readonly losses: readonly Loss[];
}

export interface Report {
  readonly violations: readonly string[];
  readonly grants: number;
  readonly losses: number;
  /** The processes that got no lock after the network had healed. */
  readonly starved: readonly number[];
  /** Votes that stood when everything had been released. */
  readonly leftovers: number;
}

const MAX_LEASE = 2_000;
const KEYS = ['a', 'b'];
const STORM = 12_000;
const CALM = 8_000;

/** Processes that want locks again and again, while network and nodes do what the plan says. */
export async function simulate(plan: Plan): Promise<Report> {
  const truth = new FakeClock();
  const random = new SeededRandom(plan.seed);
  const chance = () => random.fraction();
  const nodes = plan.nodes.map(({ rate, skew }, index) => new SimulatedNode(index, truth, rate, skew));
  // They have been up for long, and a process has counted it.
  for (const node of nodes) node.records.set(new RedlockKeyLayout('lock').run, `${node.runId} ${MAX_LEASE}`);
  const processes = plan.rates.map((rate, index) => startProcess(plan, index, rate, truth, chance, nodes));
  const phase = { isPaused: false, isCalm: false, isOver: false };
  const court = new Court(truth);
  const served = new Set<number>();
  let asking = 0;

  const work = async ({ index, locks, clock }: SimulatedProcess) => {
    await locks.start();
    for (;;) {
      // There is no order among processes: a process that asks again immediately would mostly win over those that pause for longer.
      await sleep(clock, (phase.isCalm ? 300 : 100) * chance());
      if (phase.isOver) return;
      if (phase.isPaused) continue;
      asking += 1;
      const key = KEYS[Math.floor(chance() * KEYS.length)]!;
      const askedAt = truth.now();
      const isShort = chance() < 0.2;
      const lock = await locks.acquire(key, { wait: 1_500, lease: isShort ? 300 : 1_500 }).catch(() => undefined);
      asking -= 1;
      if (!lock) continue;
      if (phase.isCalm) served.add(index);
      const end = court.granted(key, lock, askedAt, plan.delayedRestart);
      const longest = phase.isCalm ? 20 : isShort ? 600 : chance() < 0.5 ? 20 : 3_000;
      await sleep(clock, longest * chance());
      await lock.release();
      end();
    }
  };

  const lose = async ({ nodes: which, manner }: Loss) => {
    // Who votes while it loses its data promises nothing, unless it is guarded by delayedRestart.
    phase.isPaused = !plan.delayedRestart;
    const isQuiet = () => asking === 0 && !nodes.some((node) => node.awaits('V'));
    for (const node of which.map((index) => nodes[index % nodes.length]!)) {
      const timeout = truth.now() + 2_000;
      while (phase.isPaused && truth.now() < timeout && !isQuiet()) await sleep(truth, 5);
      const others = nodes.filter((each) => each !== node && each.model.remembers);
      if ((phase.isPaused && !isQuiet()) || others.length <= nodes.length / 2) continue;
      court.lost();
      if (manner === 'restart') node.restart();
      else node.forget();
    }
    phase.isPaused = false;
  };

  function storm(wire: Wire, weather: Weather, lasts: number): void {
    wire.weather = weather;
    truth.setTimer(() => (wire.weather = 'good'), lasts);
  }

  for (const { at, lasts, nodes: which, processes: whom, weather } of plan.incidents) {
    truth.setTimer(() => {
      for (const each of whom) {
        for (const index of which) storm(processes[each]!.wires[index % nodes.length]!, weather, lasts);
      }
    }, at);
  }
  for (const loss of plan.losses) truth.setTimer(() => void lose(loss), loss.at);
  truth.setTimer(() => {
    for (const { wires } of processes) for (const wire of wires) wire.weather = 'good';
  }, STORM);
  // Votes of connections that broke before they were known to the server end with their lease.
  truth.setTimer(() => (phase.isCalm = true), STORM + MAX_LEASE);

  const working = Promise.allSettled(processes.map(work));
  while (truth.now() < STORM + CALM && court.violations.length === 0) await truth.advance(500);
  phase.isOver = true;
  const everybody = { isDone: court.violations.length > 0 };
  void working.then(() => (everybody.isDone = true));
  while (!everybody.isDone) await truth.advance(20);
  // What was still in flight arrives: in much less than a lease.
  await truth.advance(100);
  const leftovers = nodes.reduce((sum, { model }) => sum + model.standing, 0);
  const stopping = Promise.all(processes.map(({ locks }) => locks.stop()));
  await truth.advance(10_000);
  await stopping;
  const starved = processes.map(({ index }) => index).filter((index) => !served.has(index));
  return { violations: court.violations, grants: court.grants, losses: court.losses, starved, leftovers };
}

/** Sees all grants, in the order of true time. */
class Court {
  readonly violations: string[] = [];
  grants = 0;
  losses = 0;
  #lostAt = -Infinity;
  readonly #held = new Map<Lock, number>();
  readonly #highest = new Map<string, bigint>();

  constructor(private readonly truth: FakeClock) {}

  lost(): void {
    this.losses += 1;
    this.#lostAt = this.truth.now();
  }

  granted(key: string, lock: Lock, askedAt: number, isGuarded: boolean): () => void {
    this.grants += 1;
    for (const [other, since] of this.#held) {
      // A vote for the other one may have been forgotten: documented.
      const isExcused = !isGuarded && this.#lostAt >= since;
      if (other.key === lock.key && other.isHeld() && lock.isHeld() && !isExcused) {
        this.violations.push(`two hold ${key} at ${this.truth.now()}`);
      }
    }
    const [token, highest] = [lock.fencingToken ?? 0n, this.#highest.get(key) ?? 0n];
    if (lock.isHeld() && token <= highest) {
      this.violations.push(`token ${token} of ${key} after ${highest} at ${this.truth.now()}`);
    }
    if (token > highest) this.#highest.set(key, token);
    this.#held.set(lock, askedAt);
    return () => this.#held.delete(lock);
  }
}

interface SimulatedProcess {
  readonly index: number;
  readonly clock: Clock;
  readonly wires: readonly Wire[];
  readonly locks: LockManager;
}

function startProcess(
  { delayedRestart }: Plan,
  index: number,
  rate: number,
  truth: FakeClock,
  chance: () => number,
  nodes: readonly SimulatedNode[],
): SimulatedProcess {
  const clock = new DriftingClock(truth, rate, index * 10_000);
  const wires = nodes.map((node) => new Wire(truth, chance, node, index + 1));
  const provider = new RedlockLockProvider({
    nodes: wires.map((client) => ({ client })),
    maxLease: MAX_LEASE,
    delayedRestart,
    commandTimeout: 300,
  });
  const locks = new LockManager({
    providers: { redlock: provider },
    clock,
    random: randomOfProcess(index, chance),
    failFast: false,
    shutdownGrace: 0,
    logger: silentLogger,
  });
  return { index, clock, wires, locks };
}
