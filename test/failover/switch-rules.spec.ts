import { Confirmation } from '../../lib/providers/failover/confirmation.js';
import { type EpochRecord, firstRecord, switched } from '../../lib/providers/failover/epoch-record.js';
import { exploration } from '../exploration.js';
import type { ProviderState } from '../../lib/api/failover-state.js';
import { MemberHealth } from '../../lib/providers/failover/member-health.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';

// One time step is slightly more than a quarter of the window, so that four steps exceed the wait at a switch.
const WINDOW = 1_000;

const STEP = 254;

const FIRST: EpochRecord = { ...firstRecord('A', WINDOW, 'first'), settled: true };

/** A write in flight: sent, possibly executed, possibly without a reply. */
interface Write {
  readonly process: number;
  readonly sentAt: number;
  readonly expected: EpochRecord;
  readonly next: EpochRecord;
  /** The record after the write was executed. */
  readonly found: EpochRecord | undefined;
  /** The process no longer waits for the reply. */
  readonly isOrphan: boolean;
}

interface Process {
  readonly confirmation: Confirmation;
  /** The lock that the process holds. */
  readonly hold: { readonly epoch: number; readonly provider: string } | undefined;
}

/** The bounds of the search. */
interface Bounds {
  readonly processes: number;
  readonly steps: number;
  readonly switches: number;
  readonly lostAnswers: number;
}

/** What a process concludes: the real {@link Confirmation}, or a deliberately broken one. */
interface Rule {
  confirmed(before: Confirmation, record: EpochRecord, sentAt: number, now: number): Confirmation;
  validUntil(confirmation: Confirmation, epoch: number): number;
  settlesAt(confirmation: Confirmation): number;
}

const RULE: Rule = {
  confirmed: (before, ...write) => before.confirmed(...write),
  validUntil: (confirmation, epoch) => confirmation.validUntil(epoch),
  settlesAt: (confirmation) => confirmation.settlesAt,
};

interface State {
  readonly time: number;
  readonly record: EpochRecord;
  readonly processes: readonly Process[];
  readonly writes: readonly Write[];
  readonly switches: number;
  readonly lost: number;
}

/**
 * Everything that can happen to one lock in a small fleet: writes executed at any time after they were sent, late or
 * lost replies, and switches at any moment. Each provider is assumed to provide mutual exclusion.
 */
class SwitchModel {
  constructor(
    private readonly bounds: Bounds,
    private readonly rule: Rule,
  ) {}

  get start(): State {
    const record = FIRST;
    const confirmation = this.rule.confirmed(Confirmation.unknown(WINDOW), record, 0, 0);
    const processes = Array.from({ length: this.bounds.processes }, () => ({ confirmation, hold: undefined }));
    return { time: 0, record, processes, writes: [], switches: 0, lost: 0 };
  }

  /** Yields every possible next state. */
  *next(state: State): Generator<State> {
    const { bounds } = this;
    if (state.time < bounds.steps) yield this.#stopped({ ...state, time: state.time + 1 });
    for (const write of state.writes) {
      if (!write.found) yield execute(state, write);
      else yield this.#stopped(this.#answer(state, write, write.found));
      if (!write.isOrphan && state.lost < bounds.lostAnswers) yield lose(state, write);
    }
    for (const [index, process] of state.processes.entries()) {
      if (!state.writes.some((write) => write.process === index && !write.isOrphan)) {
        yield this.#send(state, index, false);
        if (state.switches < bounds.switches) yield this.#stopped(this.#send(state, index, true));
      }
      if (process.hold) yield change(state, index, { hold: undefined });
      else if (this.#mayGrant(state, process)) {
        const { epoch, active: provider } = known(process);
        yield change(state, index, { hold: { epoch, provider } });
      }
    }
  }

  /** Counts the processes that believe they hold the lock. */
  holders(state: State): number {
    return state.processes.filter((process) => this.#believes(state, process)).length;
  }

  /** Returns the same text for states with the same future. */
  fingerprint(state: State): string {
    const now = state.time * STEP;
    // How long ago something ended doesn't matter.
    const ahead = (time: number) => Math.max(time - now, -1);
    const processes = state.processes.map(({ confirmation, hold }) => {
      const until = ahead(this.rule.validUntil(confirmation, confirmation.epoch));
      const held = hold ? `${hold.epoch}${hold.provider}` : '-';
      return `${title(confirmation.record)},${until},${ahead(this.rule.settlesAt(confirmation))},${held}`;
    });
    const writes = state.writes.map(
      ({ process, sentAt, expected, next, found, isOrphan }) =>
        `${isOrphan ? 'orphan' : `${process},${sentAt}`},${title(expected)},${title(next)},${title(found)}`,
    );
    const counts = `${state.time},${state.switches},${state.lost}`;
    // The send times already contain the order of the writes.
    return `${counts}|${title(state.record)}|${processes.join(';')}|${writes.sort().join(';')}`;
  }

  #send(state: State, index: number, isSwitch: boolean): State {
    const process = state.processes[index]!;
    const now = state.time * STEP;
    const expected = known(process);
    const waited = { ...expected, settled: expected.settled || now >= this.rule.settlesAt(process.confirmation) };
    const next = isSwitch ? switched(waited, waited.active === 'A' ? 'B' : 'A', 'failure', { id: '', at: 0 }) : waited;
    const write: Write = { process: index, sentAt: now, expected, next, found: undefined, isOrphan: false };
    const sent = { ...state, writes: [...state.writes, write] };
    if (!isSwitch) return sent;
    return change({ ...sent, switches: state.switches + 1 }, index, { confirmation: process.confirmation.dropped() });
  }

  #answer(state: State, write: Write, found: EpochRecord): State {
    const { confirmation } = state.processes[write.process]!;
    const now = state.time * STEP;
    const after =
      found === write.next
        ? this.rule.confirmed(confirmation, found, write.sentAt, now)
        : confirmation.learned(found, now);
    return change(without(state, write), write.process, { confirmation: after });
  }

  #mayGrant(state: State, process: Process): boolean {
    const now = state.time * STEP;
    const { epoch, active } = known(process);
    const isTaken = state.processes.some(({ hold }) => hold?.provider === active);
    return (
      !isTaken &&
      now < this.rule.validUntil(process.confirmation, epoch) &&
      now >= this.rule.settlesAt(process.confirmation)
    );
  }

  #believes(state: State, { confirmation, hold }: Process): boolean {
    return hold !== undefined && state.time * STEP < this.rule.validUntil(confirmation, hold.epoch);
  }

  /** Stops processes that no longer believe in their lock. */
  #stopped(state: State): State {
    const processes = state.processes.map((process) =>
      process.hold && !this.#believes(state, process) ? { ...process, hold: undefined } : process,
    );
    return { ...state, processes };
  }
}

function execute(state: State, write: Write): State {
  // Equal texts are equal records, so a write that changes nothing doesn't conflict with another.
  const isExpected = title(state.record) === title(write.expected);
  const record = isExpected ? write.next : state.record;
  const rest = without({ ...state, record }, write);
  return write.isOrphan ? rest : { ...rest, writes: [...rest.writes, { ...write, found: record }] };
}

/** The process gives up on the reply. A write that wasn't executed yet may still be executed. */
function lose(state: State, write: Write): State {
  const rest = without({ ...state, lost: state.lost + 1 }, write);
  const changesNothing = title(write.expected) === title(write.next);
  return write.found || changesNothing ? rest : { ...rest, writes: [...rest.writes, { ...write, isOrphan: true }] };
}

function without(state: State, write: Write): State {
  return { ...state, writes: state.writes.filter((other) => other !== write) };
}

function change(state: State, index: number, what: Partial<Process>): State {
  return { ...state, processes: state.processes.map((each, at) => (at === index ? { ...each, ...what } : each)) };
}

function known({ confirmation }: Process): EpochRecord {
  return confirmation.record ?? FIRST;
}

function title(record: EpochRecord | undefined): string {
  return record ? `${record.epoch}${record.active}${record.settled ? 's' : ''}` : '-';
}

/** Explores everything that can happen within the bounds. Returns the first state with two holders, if any. */
function search(bounds: Bounds, rule: Rule): { readonly states: number; readonly violation: State | undefined } {
  const model = new SwitchModel(bounds, rule);
  const seen = new Set([model.fingerprint(model.start)]);
  const open = [model.start];
  for (let state = open.pop(); state; state = open.pop()) {
    for (const next of model.next(state)) {
      const print = model.fingerprint(next);
      if (seen.has(print)) continue;
      seen.add(print);
      if (model.holders(next) > 1) return { states: seen.size, violation: next };
      open.push(next);
    }
  }
  return { states: seen.size, violation: undefined };
}

// 300,000 states in the long form. One more switch would make millions.
const BOUNDS: Bounds = { processes: 2, steps: exploration(4, 5), switches: 1, lostAnswers: 1 };

describe('the rule for switching providers, over everything that can happen to a small fleet', () => {
  it('never lets two processes believe they hold one lock', () => {
    const { states, violation } = search(BOUNDS, RULE);
    expect(violation).toBeUndefined();
    expect(states).toBeGreaterThan(100_000);
  }, 300_000);

  // Shows that the search detects the lack of each part of the rule.
  it.each<[string, Partial<Rule>]>([
    ['without the wait after a switch', { settlesAt: () => -Infinity }],
    [
      'with a wait that is too short',
      { settlesAt: (confirmation) => confirmation.settlesAt - confirmation.window / 2 },
    ],
    [
      'with confirmations counted from their replies',
      { confirmed: (before, record, _, now) => before.confirmed(record, now, now) },
    ],
    ['with locks trusted for longer', { validUntil: (confirmation, epoch) => confirmation.validUntil(epoch) + 300 }],
  ])(
    'finds two holders %s',
    (_, broken) => {
      expect(search(BOUNDS, { ...RULE, ...broken }).violation).toBeDefined();
    },
    300_000,
  );
});

describe('the confirmation of a process', () => {
  const first = firstRecord('a', 1_000, 'first');
  const second = { ...first, epoch: 2, id: 'second', active: 'b' };

  it('counts from when a write was sent, only for its epoch, and ends when the process learns of a switch', () => {
    const confirmed = Confirmation.unknown(1_000).confirmed(first, 100, 150);
    expect([1, 2].map((epoch) => confirmed.validUntil(epoch))).toEqual([1_088, -Infinity]);
    const switched = confirmed.learned(second, 200);
    expect([1, 2].map((epoch) => switched.validUntil(epoch))).toEqual([-Infinity, -Infinity]);
  });

  it('of an earlier epoch ends after the longest window of any process, plus 1 % and 2 ms', () => {
    expect(Confirmation.unknown(1_000).learned({ ...second, window: 3_000 }, 200).settlesAt).toBe(3_232);
    expect(Confirmation.unknown(1_000).learned({ ...second, settled: true }, 200).settlesAt).toBe(-Infinity);
  });
});

describe('the health of a member', () => {
  const terms = { failingFor: 1_000, refusingFor: 6_000, stableFor: 30_000 };
  const judge = () => {
    const clock = new FakeClock();
    const states: ProviderState[] = [];
    return { clock, states, health: new MemberHealth(terms, clock, (state) => states.push(state)) };
  };
  const fail = async ({ health, clock }: ReturnType<typeof judge>, times: number) => {
    for (let time = 0; time < times; time += 1) {
      health.failed();
      await clock.advance(500);
    }
  };

  it('is down after the required number of failures in a row', async () => {
    const at = judge();
    await fail(at, 2);
    expect(at.health.state).toBe('up');
    await fail(at, 1);
    expect(at.health.state).toBe('down');
  });

  it('is not down if it replied between failures', async () => {
    const at = judge();
    await fail(at, 2);
    at.health.succeeded();
    await fail(at, 2);
    expect(at.states).toEqual([]);
  });

  it('is not down after one broken connection that fails every command in flight', async () => {
    const at = judge();
    for (let call = 0; call < 64; call += 1) at.health.failed();
    expect(at.health.state).toBe('up');
    await at.clock.advance(terms.failingFor);
    at.health.failed();
    expect(at.health.state).toBe('down');
  });

  it('is down if it has granted nothing for long enough, although it renews', async () => {
    const at = judge();
    for (let second = 0; second < 6; second += 1) {
      at.health.failed();
      at.health.refused();
      at.health.renewed();
      await at.clock.advance(1_000);
      expect(at.states).toEqual([]);
    }
    at.health.refused();
    expect(at.states).toEqual(['down']);
    at.health.renewed();
    expect(at.states).toEqual(['down']);
    at.health.succeeded();
    expect(at.states).toEqual(['down', 'recovering']);
  });

  it('is not down if it grants locks between refusals', async () => {
    const at = judge();
    for (let second = 0; second < 20; second += 1) {
      at.health.refused();
      if (second % 5 === 0) at.health.succeeded();
      await at.clock.advance(1_000);
    }
    expect(at.states).toEqual([]);
  });

  it('is up again only after it has replied for long enough', async () => {
    const at = judge();
    await fail(at, 3);
    at.health.succeeded();
    await at.clock.advance(terms.stableFor - 1);
    at.health.succeeded();
    expect(at.health.state).toBe('recovering');
    await at.clock.advance(1);
    at.health.succeeded();
    expect(at.states).toEqual(['down', 'recovering', 'up']);
  });

  it('is down again at the first failure during recovery', async () => {
    const at = judge();
    await fail(at, 3);
    at.health.succeeded();
    at.health.failed();
    expect(at.states).toEqual(['down', 'recovering', 'down']);
  });
});
