import { LockManager } from '../../lib/core/lock-manager.js';
import type { CasStore, LockProvider } from '../../lib/api/lock-provider.js';
import { systemRandom } from '../../lib/core/toolkit/random.js';
import { LockUnavailableError } from '../../lib/api/errors.js';
import { FailoverBackend } from '../../lib/providers/failover/failover-backend.js';
import type { FailoverLockProviderOptions, FailoverSettings } from '../../lib/providers/failover/failover-options.js';
import { FailoverLockProvider } from '../../lib/providers/failover/failover-lock-provider.js';
import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { Cable, DistantBackend, DistantProvider } from '../contract/memory-server.js';

/** The values of a CasStore, shared by all processes. */
export class SharedValues {
  readonly values = new Map<string, string>();
  writes = 0;

  compareAndSet(name: string, expected: string | null, next: string): string | null {
    this.writes += 1;
    if ((this.values.get(name) ?? null) === expected) this.values.set(name, next);
    return this.values.get(name) ?? null;
  }
}

/** A remote backend with a CasStore. */
export class DistantCasBackend extends DistantBackend {
  readonly casStore: CasStore;
  /** If set, decides when a write is executed and what it returns. */
  onWrite: ((execute: () => string | null) => Promise<string | null>) | undefined;

  constructor(...[shared, ...terms]: [SharedValues, ...ConstructorParameters<typeof DistantBackend>]) {
    super(...terms);
    this.casStore = {
      compareAndSet: async (...write) => {
        const execute = () => shared.compareAndSet(...write);
        if (!this.isConnected) throw new LockUnavailableError('The record is out of reach.');
        return this.onWrite ? this.onWrite(execute) : execute();
      },
    };
  }
}

/** Creates backends with a CasStore that share one cable. */
export class DistantCasProvider implements LockProvider {
  readonly cable = new Cable();

  constructor(
    private readonly store: MemoryStore,
    private readonly shared: SharedValues,
  ) {}

  createBackend(context: Parameters<LockProvider['createBackend']>[0]): DistantCasBackend {
    return new DistantCasBackend(this.shared, context, this.store, this.cable, true);
  }
}

export const WINDOW = 5_000;
/** Longer than any switch: the provider must be found down, then a window passes, then a waiter retries. */
export const SWITCH = 15_000;

export interface FleetProcess {
  readonly locks: LockManager;
  readonly main: FailoverBackend;
  readonly a: DistantBackend;
  readonly b: DistantBackend;
  readonly record: DistantCasBackend;
  readonly log: string[];
}

type Intervals = Partial<Pick<FailoverSettings, 'probeInterval' | 'failbackDelay'>>;

/** Overrides the intervals that the provider derives from its window. */
export function withIntervals(provider: FailoverLockProvider, intervals: Intervals): FailoverLockProvider {
  Object.assign(provider['settings'], intervals);
  return provider;
}

/** Processes on one clock, with two providers and a record on a third. */
export class TestFleet {
  readonly clock = new FakeClock();
  readonly stores = { a: new MemoryStore(), b: new MemoryStore(), record: new MemoryStore() };
  readonly shared = new SharedValues();
  readonly processes: FleetProcess[] = [];

  newProvider(): DistantProvider {
    return new DistantProvider(new MemoryStore());
  }

  /** Adds a process without starting it. */
  add(
    { probeInterval, failbackDelay, ...options }: Partial<FailoverLockProviderOptions> & Intervals = {},
    others: Readonly<Record<string, LockProvider>> = {},
  ): FleetProcess {
    const main = withIntervals(
      new FailoverLockProvider({ providers: ['a', 'b'], casStore: 'record', window: WINDOW, ...options }),
      { ...(probeInterval !== undefined && { probeInterval }), ...(failbackDelay !== undefined && { failbackDelay }) },
    );
    const log: string[] = [];
    const say = (message: string) => void log.push(message);
    const locks = new LockManager({
      providers: {
        a: new DistantProvider(this.stores.a),
        b: new DistantProvider(this.stores.b),
        record: new DistantCasProvider(this.stores.record, this.shared),
        main,
        ...others,
      },
      default: 'main',
      clock: this.clock,
      logger: { debug: say, warn: say, error: say },
      // Every jitter is at its middle.
      random: { ...systemRandom(), fraction: () => 0.5 },
      shutdownGrace: 0,
    });
    const process = {
      locks,
      log,
      main: locks.admin.backend(FailoverBackend, 'main'),
      a: locks.admin.backend(DistantBackend, 'a'),
      b: locks.admin.backend(DistantBackend, 'b'),
      record: locks.admin.backend(DistantCasBackend, 'record'),
    };
    this.processes.push(process);
    return process;
  }

  /** Adds a process and starts it. */
  async start(...args: Parameters<TestFleet['add']>): Promise<FleetProcess> {
    const process = this.add(...args);
    await this.drive(process.locks.start());
    return process;
  }

  async stop(): Promise<void> {
    await this.drive(Promise.all(this.processes.map(({ locks }) => locks.stop())));
  }

  /** How many attempts all processes track. */
  get kept(): number {
    return this.processes.reduce((sum, { main }) => sum + main.size, 0);
  }

  /** Resolves when this many ms have passed on this clock. */
  passed(milliseconds: number): Promise<void> {
    return new Promise((resolve) => this.clock.setTimer(resolve, milliseconds));
  }

  /** Lets time pass until `work` has settled. */
  async drive<T>(work: Promise<T>): Promise<T> {
    const progress = { isOver: false };
    const settled = () => {
      progress.isOver = true;
    };
    work.then(settled, settled);
    for (const end = this.clock.now() + 600_000; ; await this.clock.advance(10)) {
      await this.clock.advance(0);
      if (progress.isOver) return work;
      if (this.clock.now() > end) throw new Error('The work did not settle within 10 minutes.');
    }
  }

  /** Lets time pass until `condition` holds. */
  async until(condition: () => boolean, what: string, within = SWITCH): Promise<number> {
    const start = this.clock.now();
    while (!condition()) {
      if (this.clock.now() - start > within) throw new Error(`Condition not met within ${within} ms: ${what}.`);
      await this.clock.advance(10);
    }
    return this.clock.now() - start;
  }
}
