import type { Clock, Timer } from '../../../lib/api/clock.js';
import { LockUnavailableError } from '../../../lib/api/errors.js';
import type { LockEventMap, LockEventName } from '../../../lib/api/lock-events.js';
import type { BackendContext, LockBackend, LockProvider, RecordStore } from '../../../lib/api/lock-provider.js';
import { type JobRecord, parseRecord, recordText } from '../../../lib/core/job-record.js';
import { runGuarded } from '../../../lib/core/hold/guarded-task.js';
import { LockManager } from '../../../lib/core/lock-manager.js';
import type { Schedule } from '../../../lib/recipes/jobs/schedule.js';
import { MemoryLockProvider } from '../../../lib/providers/memory/memory-lock-provider.js';
import { MemoryStore } from '../../../lib/providers/memory/memory-store.js';
import { ScheduledJob } from '../../../lib/recipes/jobs/scheduled-job.js';
import { FakeClock } from '../../../lib/testing/fake-clock.js';
import { readRunOptions, type RunTicksOptions } from '../../../lib/recipes/run-once.js';
import type { MissingRunOptions } from '../../../lib/recipes/jobs/missing-runs.js';

export const SECOND = 1_000;
export const MINUTE = 60_000;
export const HOUR = 3_600_000;
export const DAY = 24 * HOUR;
/** The server's time when a test starts. */
export const START = Date.UTC(2026, 5, 1);

const KEY = 'report';
const EVENTS = ['skipped', 'run-missed', 'run-abandoned'] as const satisfies LockEventName[];

/** A schedule with a tick every `period` ms, counted from 1970. */
export function every(period: number, text = `every ${period} (UTC)`): Schedule {
  const latest = (time: number) => Math.floor(time / period) * period;
  return { text, latest, next: (tick) => latest(tick) + period };
}

/** Injects a fault into an instance's command. It's called before the command is executed, and may wait or throw. */
export type Fault = (command: 'read' | 'replace' | 'acquire' | 'renew' | 'release', text?: string) => unknown;

/** Instances of an application that share one server. The server's clock is the true one. */
export class Fleet {
  readonly clock = new FakeClock(START);
  readonly store = new MemoryStore();
  readonly instances: TestInstance[] = [];

  constructor() {
    this.store.use(this.clock);
  }

  async add(options: InstanceOptions = {}): Promise<TestInstance> {
    const instance = new TestInstance(this, `i${this.instances.length + 1}`, options);
    this.instances.push(instance);
    await instance.locks.start();
    return instance;
  }

  /** The job record, if it's valid. */
  get record(): JobRecord | undefined {
    const text = this.store.records.get(`app:${KEY}`);
    const record = text === undefined ? undefined : parseRecord(text);
    return typeof record === 'object' ? record : undefined;
  }

  set record(record: JobRecord | string | undefined) {
    if (record === undefined) this.store.records.delete(`app:${KEY}`);
    else this.store.records.set(`app:${KEY}`, typeof record === 'string' ? record : recordText(record));
  }

  /** The server's time. */
  get now(): number {
    return this.clock.wallTime();
  }

  async stop(): Promise<void> {
    const stopping = Promise.all(this.instances.filter((each) => !each.isDead).map(({ locks }) => locks.stop()));
    await this.clock.advance(HOUR);
    await stopping;
  }
}

export interface InstanceOptions extends Looks {
  /** How many ms this instance's clock is ahead of the server's. */
  readonly ahead?: number;
  readonly schedule?: Schedule;
  readonly task?: (tick: number) => unknown;
  readonly lease?: number;
}

/** One process. */
export class TestInstance {
  readonly locks: LockManager;
  readonly job: ScheduledJob;
  /** The ticks this instance started, as recorded. */
  readonly runs: number[] = [];
  readonly log: string[] = [];
  readonly events: { readonly name: string; readonly event: unknown }[] = [];
  /** Every command this instance sent to its backend. */
  readonly commands: string[] = [];
  readonly clock: InstanceClock;
  fault: Fault = () => undefined;
  isDead = false;
  #context: BackendContext | undefined;

  constructor(
    private readonly fleet: Fleet,
    readonly name: string,
    { ahead = 0, schedule = every(MINUTE), task = () => undefined, lease, ...looks }: InstanceOptions,
  ) {
    this.clock = new InstanceClock(fleet.clock, ahead);
    const say = (message: string) => void this.log.push(message);
    this.locks = new LockManager({
      providers: { main: this.#provider() },
      ...{ clock: this.clock, namespace: 'app', instance: name, shutdownGrace: HOUR / 2, defaults: { lease } },
      logger: { debug: say, warn: say, error: say },
    });
    for (const event of EVENTS) this.locks.events.on(event, (data) => this.events.push({ name: event, event: data }));
    const recorded = async () => {
      const { tick } = this.fleet.record!;
      this.runs.push(tick);
      await task(tick);
    };
    const run = async () => {
      const begun = await this.job.begin();
      if (!begun) return { ran: false };
      const value = await runGuarded(begun.lock, begun.recorded(recorded), plan.settings.onLost);
      return { ran: true, value };
    };
    const plan = this.locks.plan({ wait: 0 });
    this.job = new ScheduledJob(this.locks, KEY, plan, () => schedule, looksOf(looks));
    this.job.attach(run);
    this.fire = run;
  }

  /** Runs the job for the latest tick, as a scheduler would. */
  readonly fire: () => Promise<unknown>;

  /** Returns the events with this name. */
  of<N extends (typeof EVENTS)[number]>(name: N): LockEventMap[N][] {
    return this.events.filter((each) => each.name === name).map(({ event }) => event as LockEventMap[N]);
  }

  get skipped(): string[] {
    return this.of('skipped').map(({ reason }) => reason);
  }

  /** Stops everything this instance does. Its commands never get a response. */
  kill(): void {
    this.isDead = true;
    this.clock.kill();
  }

  recovered(): void {
    this.#context?.emit({ type: 'recovered' });
  }

  #provider(): LockProvider {
    const original = new MemoryLockProvider({ store: this.fleet.store });
    return {
      createBackend: (context) => {
        this.#context = context;
        const backend = original.createBackend({ ...context, clock: this.fleet.clock });
        const executed: LockBackend = original.createBackend({ ...context, clock: this.fleet.clock });
        const { records } = executed;
        const asked = async <T>(
          command: Parameters<Fault>[0],
          execute: () => Promise<T>,
          text?: string,
        ): Promise<T> => {
          this.commands.push(text === undefined ? command : `${command} ${stateOf(text)}`);
          await this.fault(command, text);
          if (this.isDead) return await new Promise(() => {});
          return await execute();
        };
        const faulty: RecordStore = {
          read: (name) => asked('read', () => records!.read(name)),
          replace: (name, expected, next) => asked('replace', () => records!.replace(name, expected, next), next),
          list: () => records!.list(),
        };
        return Object.assign(backend, {
          // As a backend that reconnects automatically.
          commandTimeout: SECOND,
          acquire: (request: never) => asked('acquire', () => executed.acquire(request)),
          renew: (request: never, lease: number) => asked('renew', () => executed.renew(request, lease)),
          release: (request: never, options: never) => asked('release', () => executed.release(request, options)),
          records: faulty,
        });
      },
    };
  }
}

/** An instance's own clock, which advances with the fleet's. */
export class InstanceClock implements Clock {
  readonly #timers = new Set<Timer>();

  constructor(
    private readonly clock: FakeClock,
    private readonly ahead: number,
  ) {}

  now = () => this.clock.now();
  uptime = () => this.clock.uptime();
  wallTime = () => this.clock.wallTime() + this.ahead;

  setTimer(callback: () => void, delay: number): Timer {
    const timer = this.clock.setTimer(() => {
      this.#timers.delete(timer);
      callback();
    }, delay);
    this.#timers.add(timer);
    return timer;
  }

  clearTimer(timer: Timer): void {
    this.#timers.delete(timer);
    this.clock.clearTimer(timer);
  }

  get pendingTimers(): number {
    return this.#timers.size;
  }

  kill(): void {
    for (const timer of this.#timers) this.clock.clearTimer(timer);
    this.#timers.clear();
    this.setTimer = () => ({});
  }
}

export function unavailable(): LockUnavailableError {
  return new LockUnavailableError('The server does not respond.');
}

function stateOf(text: string): string {
  return (JSON.parse(text) as JobRecord).state;
}

export type Looks = Pick<RunTicksOptions, 'catchUp' | 'afterCrash'>;

/** Parses the options of a scheduled method. */
export function looksOf({ catchUp, afterCrash }: Looks): MissingRunOptions {
  const { missingRuns } = readRunOptions({ catchUp, afterCrash });
  if (!missingRuns) throw new Error('The method has no schedule.');
  return missingRuns;
}
