import { jest } from '@jest/globals';
import { LockManager } from '../../lib/core/lock-manager.js';
import type { LockProvider, Records } from '../../lib/api/lock-provider.js';
import { systemRandom } from '../../lib/core/toolkit/random.js';
import { LockUnavailableError } from '../../lib/api/errors.js';
import { FailoverProvider } from '../../lib/providers/failover/failover-provider.js';
import type { FailoverProviderOptions } from '../../lib/providers/failover/failover-options.js';
import { Failover } from '../../lib/providers/failover/failover.js';
import { LockTable } from '../../lib/providers/memory/lock-table.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { DistantMemoryProvider } from '../contract/memory-backend.js';

/** What the records of a backend hold. */
export class RecordStore {
  readonly values = new Map<string, string>();
  writes = 0;

  compareAndSet(name: string, expected: string | null, next: string): string | null {
    this.writes += 1;
    if ((this.values.get(name) ?? null) === expected) this.values.set(name, next);
    return this.values.get(name) ?? null;
  }
}

/** An engine or a record at the end of a cable. */
export class DistantRecordProvider extends DistantMemoryProvider {
  readonly records: Records;
  /** Stands between a write and its execution, where it is set. */
  onWrite: ((execute: () => string | null) => Promise<string | null>) | undefined;

  constructor(table: LockTable, store: RecordStore) {
    super(table);
    this.records = {
      compareAndSet: async (...write) => {
        const execute = () => store.compareAndSet(...write);
        if (!this.isConnected) throw new LockUnavailableError('The record is out of reach.');
        return this.onWrite ? this.onWrite(execute) : execute();
      },
    };
  }
}

export const WINDOW = 5_000;
/** Longer than any switch takes: the engine must be found down, then a window, then a waiter's next try. */
export const SWITCH = 15_000;

export interface FleetProcess {
  readonly locks: LockManager;
  readonly main: FailoverProvider;
  readonly a: DistantMemoryProvider;
  readonly b: DistantMemoryProvider;
  readonly record: DistantRecordProvider;
  readonly log: string[];
}

/** Processes under one clock, with two engines, and a record on a third. */
export class TestFleet {
  readonly clock = new FakeClock();
  readonly tables = { a: new LockTable(), b: new LockTable(), record: new LockTable() };
  readonly store = new RecordStore();
  readonly processes: FleetProcess[] = [];
  /** What works behind the providers, for tests of leaks. */
  readonly #started = jest.spyOn(Failover.prototype, 'start');

  newEngine(): DistantMemoryProvider {
    return new DistantMemoryProvider(new LockTable());
  }

  /** A process that was not started. */
  add(
    options: Partial<FailoverProviderOptions> = {},
    others: Readonly<Record<string, LockProvider>> = {},
  ): FleetProcess {
    const a = new DistantMemoryProvider(this.tables.a);
    const b = new DistantMemoryProvider(this.tables.b);
    const record = new DistantRecordProvider(this.tables.record, this.store);
    const main = new FailoverProvider({
      engines: ['a', 'b'],
      window: WINDOW,
      ...(options.mode === 'available' ? {} : { record: 'record' }),
      ...options,
    });
    const log: string[] = [];
    const say = (message: string) => void log.push(message);
    const locks = new LockManager({
      providers: { a, b, record, main, ...others },
      default: 'main',
      clock: this.clock,
      logger: { debug: say, warn: say, error: say },
      // The middle of each jitter.
      random: { ...systemRandom(), fraction: () => 0.5 },
      shutdownGrace: 0,
    });
    const process = { locks, main, a, b, record, log };
    this.processes.push(process);
    return process;
  }

  /** A process that runs. */
  async start(...args: Parameters<TestFleet['add']>): Promise<FleetProcess> {
    const process = this.add(...args);
    await this.drive(process.locks.start());
    return process;
  }

  async stop(): Promise<void> {
    this.#started.mockRestore();
    await this.drive(Promise.all(this.processes.map(({ locks }) => locks.stop())));
  }

  /** How many attempts all processes keep track of. */
  get kept(): number {
    return (this.#started.mock.contexts as Failover[]).reduce((sum, { size }) => sum + size, 0);
  }

  /** Resolves when so many ms have passed, by this clock. */
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
      if (this.clock.now() > end) throw new Error('It did not end.');
    }
  }

  /** Lets time pass until `condition` holds. */
  async until(condition: () => boolean, what: string, within = SWITCH): Promise<number> {
    const start = this.clock.now();
    while (!condition()) {
      if (this.clock.now() - start > within) throw new Error(`Waited ${within} ms in vain until ${what}.`);
      await this.clock.advance(10);
    }
    return this.clock.now() - start;
  }
}
