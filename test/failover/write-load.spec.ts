import { systemRandom } from '../../lib/core/toolkit/random.js';
import { SuspensionDetector } from '../../lib/core/toolkit/suspension.js';
import type { BackendContext, CasStore } from '../../lib/api/lock-provider.js';
import type { EpochRecord } from '../../lib/providers/failover/epoch-record.js';
import type { ProviderState } from '../../lib/api/failover-state.js';
import { SharedRecord } from '../../lib/providers/failover/shared-record.js';
import { SwitchPolicy } from '../../lib/providers/failover/switch-policy.js';
import { SeededRandom } from '../../lib/provider-kit/seeded-random.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { SharedValues } from './fleet-rig.js';

const SECOND = 1_000;
const WINDOW = 6 * SECOND;
const SETTINGS = {
  ...{ providers: ['a', 'b'], casStore: 'record', window: WINDOW },
  ...{ probeInterval: 2 * SECOND, failbackDelay: 60 * SECOND },
};

/** Processes that share one record. The test sets the health of their members. */
class Writers {
  readonly clock = new FakeClock();
  readonly shared = new SharedValues();
  readonly #random = new SeededRandom(7);
  readonly #all: { readonly record: SharedRecord; readonly health: Map<string, { state: ProviderState }> }[];
  /** The shortest and the longest remaining validity of any process during the latest {@link pass}, in ms. */
  shortest = Infinity;
  longest = -Infinity;

  constructor(
    count: number,
    private readonly roundTrip: number,
  ) {
    this.#all = Array.from({ length: count }, () => this.#make());
  }

  /** Starts the processes, spread over `spread` ms. */
  async start(spread: number): Promise<void> {
    const started = this.#all.map(async ({ record }, index) => {
      await this.#sleep((index * spread) / this.#all.length);
      await record.connect();
    });
    await this.pass(spread + 3 * WINDOW);
    await Promise.all(started);
  }

  async stop(): Promise<void> {
    const closed = this.#all.map(({ record }) => record.close());
    await this.pass(WINDOW);
    await Promise.all(closed);
  }

  /** Changes the state of a member in all processes, spread over a second. */
  all(member: string, state: ProviderState): void {
    for (const [index, { record, health }] of this.#all.entries()) {
      const change = () => {
        health.set(member, Object.assign(health.get(member) ?? {}, { state }));
        void record.write();
      };
      this.clock.setTimer(change, (index * SECOND) / this.#all.length);
    }
  }

  /** Lets time pass until `condition` holds, but at most `most` ms. Returns how long that took. */
  async pass(most: number, condition = () => false): Promise<number> {
    const start = this.clock.now();
    this.shortest = Infinity;
    this.longest = -Infinity;
    while (!condition() && this.clock.now() < start + most) {
      await this.clock.advance(20);
      for (const { record } of this.#all) {
        const confirmation = record.confirmationAt(this.clock.now());
        const validity = confirmation.validUntil(confirmation.epoch) - this.clock.now();
        this.shortest = Math.min(this.shortest, validity);
        this.longest = Math.max(this.longest, validity);
      }
    }
    return this.clock.now() - start;
  }

  get record(): EpochRecord {
    return JSON.parse(this.shared.values.get('main') ?? '{}') as EpochRecord;
  }

  /** Counts the processes that report the member as down. */
  missing(member: string): number {
    return Object.values(this.record.reports).filter(({ down }) => down.includes(member)).length;
  }

  #make() {
    const health = new Map<string, { state: ProviderState }>(SETTINGS.providers.map((name) => [name, { state: 'up' }]));
    const { clock } = this;
    const silent = () => undefined;
    const random = { ...systemRandom(), fraction: () => this.#random.fraction() };
    const context: BackendContext = {
      ...{ name: 'main', namespace: 'lock', instance: { id: '0123456789ab', name: 'host:1' }, clock, random },
      emit: silent,
      logger: { debug: silent, warn: silent, error: silent },
      member: () => {
        throw new Error('There is no member.');
      },
    };
    const casStore: CasStore = {
      compareAndSet: async (...write) => {
        await this.#sleep((this.roundTrip / 2) * (0.8 + 0.4 * this.#random.fraction()));
        const found = this.shared.compareAndSet(...write);
        await this.#sleep((this.roundTrip / 2) * (0.8 + 0.4 * this.#random.fraction()));
        return found;
      },
    };
    const policy = new SwitchPolicy(context, SETTINGS, health);
    const suspension = new SuspensionDetector(clock);
    return { record: new SharedRecord(context, SETTINGS, casStore, suspension, policy, silent), health };
  }

  #sleep(milliseconds: number): Promise<void> {
    return new Promise((resolve) => this.clock.setTimer(resolve, milliseconds));
  }
}

// docs/how-it-works/others.md quotes the numbers for 100 processes.
describe.each([
  { count: 20, roundTrip: 5 },
  { count: 100, roundTrip: 20 },
])('the record of $count processes, $roundTrip ms away', ({ count, roundTrip }) => {
  let writers: Writers;
  beforeEach(async () => {
    writers = new Writers(count, roundTrip);
    await writers.start(2 * SECOND);
  });
  afterEach(() => writers.stop());

  it('is written once per process every third of a window', async () => {
    expect(Object.keys(writers.record.reports)).toHaveLength(count);
    const before = writers.shared.writes;
    await writers.pass(10 * WINDOW);
    const each = (writers.shared.writes - before) / count;
    expect(each).toBeGreaterThan(29);
    expect(each).toBeLessThan(31);
  });

  it('stores a report of each process without delaying confirmations', async () => {
    const before = writers.shared.writes;
    writers.all('b', 'down');
    await writers.pass(60 * SECOND, () => writers.missing('b') === count);
    expect(writers.missing('b')).toBe(count);
    // Below half a window, a confirmation could expire: a third of a window passes between two writes anyway.
    expect(writers.shortest).toBeGreaterThan(WINDOW / 2);
    expect(writers.shared.writes - before).toBeLessThan(20 * count);
  });

  it('is switched in time if most processes cannot reach the active member', async () => {
    writers.all('a', 'down');
    const switched = await writers.pass(60 * SECOND, () => writers.record.epoch === 2);
    expect(writers.record).toMatchObject({ active: 'b', history: [{ reason: 'failure' }] });
    expect(writers.missing('a') * 2).toBeGreaterThan(count);
    expect(switched).toBeLessThan(WINDOW);
  });
});

describe('a write to a record that is a second away', () => {
  let writers: Writers;
  beforeEach(async () => {
    writers = new Writers(1, SECOND);
    await writers.start(0);
  });
  afterEach(() => writers.stop());

  it('confirms from when it was sent', async () => {
    await writers.pass(10 * WINDOW);
    expect(writers.longest).toBeLessThan(WINDOW - 0.8 * SECOND);
    expect(writers.longest).toBeGreaterThan(WINDOW - 1.5 * SECOND);
  });

  it('confirms nothing if the machine is suspended before its reply arrives', async () => {
    const { writes } = writers.shared;
    await writers.pass(WINDOW, () => writers.shared.writes > writes);
    writers.clock.suspend(3_600_000);
    // Long enough for the reply to arrive, but not for the next write.
    await writers.pass(0.7 * SECOND);
    expect(writers.longest).toBe(-Infinity);
    await writers.pass(SECOND);
    expect(writers.longest).toBeGreaterThan(0);
  });
});
