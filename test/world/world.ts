import { LockManager } from '../../lib/core/lock-manager.js';
import { FailoverLockProvider } from '../../lib/providers/failover/failover-lock-provider.js';
import type { IoredisClient } from '../../lib/providers/redis/client/ioredis.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { RedisLockProvider } from '../../lib/providers/redis/redis-lock-provider.js';
import { RedlockLockProvider } from '../../lib/providers/redlock/redlock-lock-provider.js';
import type { BackendContext, CasStore, LockBackend, LockProvider } from '../../lib/api/lock-provider.js';
import { clusterClient } from './cluster-client.js';
import { Dice } from './dice.js';
import { FAILOVER, FailoverJudge, failoverTimeOf, memberLeaseOf, MEMBERS } from './failover-judge.js';
import { FaultInjector } from './faults.js';
import { JobJudge } from './job-judge.js';
import { Judge } from './judge.js';
import type { LuaEngine, Reply } from './lua-engine.js';
import { EPOCH, Machine } from './machine.js';
import { FIRST_PORT, Network, SimulatedConnection, WorldServer } from './network.js';
import type { Plan, PlannedFailover, PlannedRedlock } from './plan.js';
import { QuorumJudge } from './quorum-judge.js';
import { isLock, RedisModel } from './redis-model.js';
import { Recipes } from './recipes.js';
import { SlotMap, SLOTS } from './slot-map.js';
import { Story, Timeline } from './timeline.js';
import { type Outcomes, type Process, Workload } from './workload.js';

/** What a run has shown. */
export interface Outcome {
  readonly violations: readonly string[];
  /** Equal for two runs with the same events. */
  readonly hash: string;
  readonly story: readonly string[];
  /** Simulated time, in ms. */
  readonly simulated: number;
  readonly events: number;
  readonly commands: number;
  readonly faults: number;
  readonly crashes: number;
  readonly outcomes: Outcomes;
}

/** The time after the last call and fault until every lease, wait, and outage is over. */
const QUIET = 120_000;
/** Longer than anything is stored for processes that are gone. */
const FORGOTTEN_AFTER = 60_000;
/** The keys for which the healthy fleet queues at the end. */
const LAST_KEYS = ['k0', 'k1', 'pool0'];

function inWords(reply: Reply): string {
  if (Array.isArray(reply)) return reply.map(inWords).join(', ');
  return reply instanceof Error ? reply.message : JSON.stringify(reply);
}

/** The locks named by a script call, which follow the counter. */
function locksOf([, , keys, , ...args]: readonly string[]): readonly string[] {
  return args.slice(0, Number(keys) - 1);
}

/** A Redis provider that offers its job records as the record of a failover provider. Its server loses nothing. */
class RecordProvider extends RedisLockProvider {
  override createBackend(context: BackendContext): LockBackend {
    const backend = super.createBackend(context);
    const { records } = backend;
    if (records === undefined) throw new Error('Redis keeps records.');
    const casStore: CasStore = {
      compareAndSet: async (...write) => (await records.replace(...write)).value,
    };
    return Object.assign(backend, { casStore });
  }
}

/** Runs a plan's fleet. @param keepsLines whether to keep what happens in words */
export async function simulate(engine: LuaEngine, plan: Plan, keepsLines = false): Promise<Outcome> {
  return await new World(engine, plan, keepsLines).run();
}

/** A fleet, its server, and the network between them, from the boot until nothing is left. */
class World {
  readonly #timeline = new Timeline();
  readonly #story: Story;
  readonly #network: Network;
  readonly #judge: Judge;
  readonly #workload: Workload;
  readonly #faults: FaultInjector;
  readonly #processes: Process[] = [];
  readonly #recipes: Recipes | undefined;
  #started = 0;

  constructor(
    private readonly engine: LuaEngine,
    private readonly plan: Plan,
    keepsLines: boolean,
  ) {
    const timeline = this.#timeline;
    const { latency, commandTimeout, habits, keys, seed } = plan;
    this.#story = new Story(timeline, keepsLines);
    this.#network = new Network(timeline, new Dice(seed, 2), latency);
    const { masters, redlock, failover } = plan;
    if (masters !== undefined) {
      this.#network.slots = new SlotMap(
        SLOTS.map((slot) => FIRST_PORT + Math.floor((slot * masters) / 16_384)),
        0,
      );
    }
    this.#network.areIndependent = redlock !== undefined || failover !== undefined;
    const count = masters ?? redlock?.nodes ?? (failover ? MEMBERS.length + 1 : 1);
    for (let index = 0; index < count; index += 1) this.#network.servers.push(this.#makeServer());
    this.#network.onCommand = (link, command, reply) => {
      const [name = '', , , ...args] = command;
      this.#story.note(`#${link.id} ${name} ${args.join(' ')} → ${inWords(reply)}`);
      const { number } = this.#processes.find(({ machine }) => machine === link.machine) ?? {};
      if (number !== undefined && name.startsWith('eval') && !(reply instanceof Error))
        this.#judge.executed(number, locksOf(command));
    };
    this.#network.onUnsubscribed = (link, channel) => {
      this.#story.note(`#${link.id} is no longer subscribed to ${channel}`);
    };
    const typical = latency.typical + latency.slowShare * latency.slow;
    const modelOf = (key: string) => this.#network.modelOf(key);
    const bounds = {
      // Requests to nodes are retried after pauses, and occasionally split the votes.
      handoff: (redlock ? 3_000 : 250) + 12 * typical + 8 * (latency.slowShare > 0 ? latency.slow : 0),
      recovery: 8_000 + 60 * typical + (failover ? failoverTimeOf(failover) : 0),
      provisional: 1_500 + 20 * typical + plan.processes * Math.min(3_000, ...habits.leases),
      renewable: (redlock ? 1_500 : 500) + 10 * (latency.typical + (latency.slowShare > 0 ? latency.slow : 0)),
      commandTimeout,
    };
    const report = (violation: string) => {
      this.#judge.report(violation);
    };
    const allAhead = () => {
      const running = this.#processes.filter(({ machine }) => !machine.isDead);
      return Math.min(...running.map(({ machine }) => machine.clock.wallTime() - EPOCH - timeline.now));
    };
    this.#judge = new Judge(timeline, modelOf, bounds, {
      placeOf: (process) => this.#processes.find(({ number }) => number === process)?.place,
      jobs: plan.recipes && new JobJudge(plan.recipes, allAhead, modelOf, report),
      isInMemory: plan.isInMemory === true,
      quorum: redlock && this.#quorumJudge(redlock, report),
      failover: failover && this.#failoverJudge(failover, bounds.recovery, report),
    });
    if (plan.recipes) this.#recipes = new Recipes(plan.recipes, this.#judge, this.#story, timeline);
    this.#workload = new Workload(habits, keys, failover === undefined, this.#judge, this.#story, () => timeline.now);
    this.#faults = new FaultInjector(plan, timeline, this.#network, this.#judge, this.#story, {
      processes: this.#processes,
      makeServer: () => this.#makeServer(),
      boot: (place) => {
        void this.#boot(place);
      },
    });
  }

  async run(): Promise<Outcome> {
    const { plan } = this;
    const timeline = this.#timeline;
    for (let place = 0; place < plan.processes; place += 1) void this.#boot(place);
    this.#faults.start();
    this.#judge.watch();
    await timeline.runUntil(plan.duration);
    this.#workload.isOver = true;
    this.#recipes?.end();
    this.#judge.jobs?.end();
    await timeline.runUntil(timeline.now + QUIET);
    this.#judge.end();
    this.#checkQuiet();
    await this.#serveAll();
    await this.#stop();
    const { now: simulated, events } = timeline;
    return {
      ...{ violations: this.#judge.violations, hash: this.#story.hash, story: this.#story.lines },
      ...{ simulated, events, outcomes: this.#workload.outcomes },
      commands: this.#network.servers.reduce((sum, { model }) => sum + model.commands, 0),
      faults: this.#faults.count,
      crashes: this.#faults.crashes,
    };
  }

  #makeServer(): WorldServer {
    const { slots, servers } = this.#network;
    const { redlock, failover } = this.plan;
    if (redlock) return this.#makeNode(redlock, servers.length);
    const behind = failover && servers.length > 0 ? failover.behind : 0;
    const own = slots && new SlotMap([...slots.owners], FIRST_PORT + servers.length);
    return new WorldServer(new RedisModel(this.engine, () => EPOCH - behind + this.#timeline.now, own));
  }

  /** A node whose wall clock is wrong and drifts. */
  #makeNode({ skew }: PlannedRedlock, index: number): WorldServer {
    const dice = new Dice(this.plan.seed, 7, index);
    const [error, rate] = [dice.between(-skew, skew), 1 + dice.between(-this.plan.drift, this.plan.drift)];
    const clock = () => EPOCH + error + this.#timeline.now * rate;
    return new WorldServer(new RedisModel(this.engine, clock, undefined, `node${index}`));
  }

  #quorumJudge(redlock: PlannedRedlock, report: (violation: string) => void): QuorumJudge {
    const judge = new QuorumJudge(
      this.#network.servers.map(({ model }) => model),
      redlock,
      {
        withoutMajority: (until, place) => {
          this.#judge.withoutMajority(until, place);
        },
        orphaned: (until) => {
          this.#judge.orphaned(until);
        },
        report,
      },
    );
    this.#network.onSent = (machine, command) => {
      const process = this.#processes.find((each) => each.machine === machine);
      if (process) judge.sent(process.number, command, this.#timeline.now);
    };
    return judge;
  }

  #failoverJudge(failover: PlannedFailover, recovery: number, report: (violation: string) => void): FailoverJudge {
    const models = this.#network.servers.map(({ model }) => model);
    const record = models.pop() as RedisModel;
    return new FailoverJudge(models, record, failover, recovery, {
      running: () => this.#processes.filter(({ machine }) => !machine.isDead).length,
      disturbed: (until) => {
        this.#judge.disturbed(until);
      },
      troubled: (place, until) => {
        this.#judge.troubled(place, until, memberLeaseOf(failover));
      },
      report,
    });
  }

  #providers(place: number, machine: Machine, dice: Dice): Record<string, LockProvider> {
    const { failover, commandTimeout } = this.plan;
    if (failover === undefined) return { [FAILOVER]: this.#provider(machine, dice) };
    const options = (index: number) => ({ client: this.#clientAt(index, machine), commandTimeout });
    const members = MEMBERS.map((name, index) => [name, new RedisLockProvider(options(index))] as const);
    return {
      ...Object.fromEntries(members),
      record: new RecordProvider(options(MEMBERS.length)),
      [FAILOVER]: new FailoverLockProvider({
        providers: MEMBERS,
        casStore: 'record',
        window: failover.windows[place],
      }),
    };
  }

  #clientAt(index: number, machine: Machine): IoredisClient {
    return {
      duplicate: (options = {}) =>
        new SimulatedConnection(this.#network, machine, { ...options, port: FIRST_PORT + index }),
    };
  }

  #provider(machine: Machine, dice: Dice): LockProvider {
    const { isInMemory, redlock, commandTimeout } = this.plan;
    if (isInMemory) return new MemoryLockProvider();
    if (redlock === undefined) return this.#redis(machine, dice);
    const { maxLease, delayedRestart } = redlock;
    const nodes = this.#network.servers.map((_, index) => ({ client: this.#clientAt(index, machine) }));
    return new RedlockLockProvider({ nodes, maxLease, delayedRestart, commandTimeout });
  }

  #redis(machine: Machine, dice: Dice): RedisLockProvider {
    const { masters, commandTimeout } = this.plan;
    const single: IoredisClient = {
      duplicate: (options = {}) => new SimulatedConnection(this.#network, machine, options),
    };
    const client = masters === undefined ? single : clusterClient(this.#network, machine, masters, dice);
    return new RedisLockProvider({ client, commandTimeout });
  }

  async #boot(place: number): Promise<void> {
    const { plan } = this;
    const number = (this.#started += 1);
    const dice = new Dice(plan.seed, 3, number);
    const machine = new Machine(this.#timeline, 1 + dice.between(-plan.drift, plan.drift), dice.whole(1e6));
    let ids = 0;
    const locks = new LockManager({
      providers: this.#providers(place, machine, dice),
      default: FAILOVER,
      clock: machine.clock,
      // The first digits identify the instance, and the last digits the backend's process.
      random: {
        fraction: () => dice.fraction(),
        id: () =>
          (number * 2 ** 24 + (ids += 1)).toString(16).padStart(12, '0').padEnd(20, '0') +
          (number * 2 ** 24 + ids).toString(16).padStart(12, '0'),
      },
      instance: `process-${number}`,
      failFast: false,
    });
    const process = { place, number, machine, locks };
    this.#processes[place] = process;
    this.#story.note(`process ${number} starts in place ${place}`);
    await locks.start();
    this.#recipes?.start(process);
    for (const caller of plan.callers) if (caller.place === place) void this.#workload.run(process, caller);
  }

  /** No callers are left, and there are no faults. */
  #checkQuiet(): void {
    for (const { locks, number } of this.#processes) {
      const held = locks.admin.held();
      const waiting = locks.admin.waiting();
      if (held.length > 0) this.#judge.report(`process ${number} still holds ${held.map(({ key }) => key).join()}`);
      if (waiting.length > 0) {
        this.#judge.report(`process ${number} still waits for ${waiting.map(({ key }) => key).join()}`);
      }
    }
  }

  /** A healthy fleet serves all callers, one after the other, without any lease having to expire. */
  async #serveAll(): Promise<void> {
    const timeline = this.#timeline;
    const { latency, habits, redlock, failover } = this.plan;
    const lease = Math.min(30_000, redlock?.maxLease ?? Infinity);
    const keys = this.#network.areIndependent ? LAST_KEYS.filter((key) => key !== 'pool0') : LAST_KEYS;
    const since = timeline.now;
    let last = since;
    let open = 0;
    const call = async ({ locks, machine, number }: Process, key: string) => {
      open += 1;
      const options = { wait: 60_000, ...(!failover && { lease }), ...(key === 'pool0' && { limit: habits.limit }) };
      try {
        await locks.withLock(key, () => machine.sleep(10), options);
      } catch (error) {
        this.#judge.report(`a patient caller of process ${number} was refused "${key}": ${String(error)}`);
      }
      last = timeline.now;
      open -= 1;
    };
    for (const process of this.#processes)
      for (const key of keys) for (let i = 0; i < 2; i += 1) void call(process, key);
    await timeline.runUntil(since + 70_000, () => open === 0);
    if (open > 0) this.#judge.report(`${open} patient callers got no result`);
    const turns = 2 * this.#processes.length;
    const most =
      // A failback may occur meanwhile.
      (failover ? failoverTimeOf(failover) : 0) +
      1_000 +
      turns * ((redlock ? 400 : 40) + 10 * latency.typical + 8 * (latency.slowShare > 0 ? latency.slow : 0));
    if (last - since > most) {
      this.#judge.report(`a healthy fleet needed ${(last - since).toFixed(0)} ms to serve ${turns} callers per key`);
    }
  }

  /** All processes stop, and nothing remains of them. */
  async #stop(): Promise<void> {
    const timeline = this.#timeline;
    let stopped = 0;
    for (const { locks } of this.#processes) void locks.stop().then(() => (stopped += 1));
    await timeline.runUntil(timeline.now + FORGOTTEN_AFTER);
    if (stopped < this.#processes.length)
      this.#judge.report(`${this.#processes.length - stopped} processes did not stop`);
    for (const { machine, number } of this.#processes) {
      if (machine.timers > 0) this.#judge.report(`process ${number} left ${machine.timers} timers`);
      const links = this.#network.linksOf(machine).length;
      if (links > 0) this.#judge.report(`process ${number} left ${links} connections`);
    }
    const keys = this.#network.masters.flatMap(({ model }) => model.keys());
    const left = keys.filter((key) => isLock(key) && !key.endsWith('}t'));
    if (left.length > 0) this.#judge.report(`left at the server: ${left.join()}`);
  }
}
