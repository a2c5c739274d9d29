import { type Bounds, type Fault, KEEP, LEASE, type Rule, RULE, search } from './queue-model.js';

const ALL: readonly Fault[] = ['connection', 'crash', 'freeze', 'data', 'notice'];
const HELD = ['caller arrives 0', 'server executes 0', 'reply 0'];

/** Each is gone through completely. */
const SHORT: readonly Bounds[] = [
  { callers: [2, 1] },
  { callers: [1, 1], faults: ALL, mostFaults: 1 },
  { callers: [2, 1], faults: ['data', 'notice'], mostFaults: 1 },
  // A caller is overtaken while it waits behind two of its process.
  { callers: [3, 2], after: [...HELD, 'caller arrives 0', 'caller arrives 0', 'tick 0'] },
  // A cohort, and a caller of the other process after it.
  {
    callers: [2, 2],
    faults: ['data'],
    mostFaults: 1,
    after: [...HELD, 'caller arrives 1', 'caller arrives 1', 'server executes 1', 'releases 0', 'server executes 0'],
  },
];

const LONG: readonly Bounds[] = [
  { callers: [3, 2] },
  { callers: [2, 2], leaving: 1 },
  { callers: [1, 1, 1], leaving: 1 },
  { callers: [2, 1], faults: ALL, mostFaults: 1, leaving: 1 },
  { callers: [2, 2], faults: ['crash', 'data', 'notice'], mostFaults: 1 },
  { callers: [1, 1], faults: ALL, mostFaults: 2 },
  { callers: [1, 1, 1], faults: ['crash', 'data', 'notice'], mostFaults: 1 },
];

const isLong = process.env['LOCK_TESTS_LONG'] === '1';

describe('the model of processes that wait at Redis for their callers', () => {
  it('keeps all promises in each order of events', () => {
    const events = new Set<string>();
    for (const bounds of isLong ? [...SHORT, ...LONG] : SHORT) {
      const found = search(bounds);
      for (const event of found.events.keys()) events.add(event);
      expect({ bounds, violation: found.violation, steps: found.steps }).toEqual({ bounds, steps: [] });
      expect({ bounds, isComplete: found.isComplete }).toEqual({ bounds, isComplete: true });
    }
    // Else nothing was shown.
    expect([...events].sort()).toEqual([
      'a grant is confirmed first',
      'a grant is lost by the clock',
      'a hold is found',
      'a notice arrives during the hold',
      'a notice is answered with a release',
      'a renewal is lost',
      'a renewal is lost after a local handoff',
    ]);
  }, 3_600_000);

  // What the model is worth.
  it.each<[string, Partial<Rule>, Bounds, string]>([
    [
      'a notice for a request that is not waiting is answered with a release',
      { known: 'while-waiting' },
      { callers: [1, 1], faults: ['connection'], mostFaults: 1 },
      'two hold',
    ],
    ['a lost renewal concerns the caller that sent it', { lost: 'sender' }, { ...SHORT[4]! }, 'two hold'],
    ['a call releases before it asks', { first: 'release' }, { ...SHORT[3]! }, 'overtaken by two cohorts'],
    [
      'a hold that is found has followers',
      { found: 'with-followers' },
      { callers: [2, 1], faults: ['connection'], mostFaults: 1, after: ['caller arrives 0', 'server executes 0'] },
      'enters after token',
    ],
    [
      'a repeated ask has no age, and the oldest caller leaves',
      { age: 'first-ask' },
      {
        callers: [1, 2, 1],
        leaving: 1,
        after: [...HELD, 'caller arrives 1', 'server executes 1', 'tick 0', 'caller arrives 2', 'server executes 2'],
      },
      'granted to a younger caller',
    ],
    [
      'a repeated ask has no age, and the data is lost',
      { age: 'first-ask' },
      {
        callers: [1, 1, 1, 1],
        faults: ['data'],
        mostFaults: 1,
        after: [...HELD, 'caller arrives 1', 'server executes 1', 'tick 0', 'caller arrives 2', 'server executes 2'],
      },
      'granted to a younger caller',
    ],
    [
      'a release is repeated for as long as the lease',
      { repeat: LEASE },
      { callers: [1, 1], faults: ['connection'], mostFaults: 1, leaving: 1 },
      'a request that is over',
    ],
    // The queue lives on while others ask, and a command of the lost connection may be executed just before the process reconnects.
    [
      'a release is repeated for as long as the lease and an idle queue, and an outage counts',
      { repeat: Math.max(LEASE, KEEP) },
      { callers: [1, 1], faults: ['connection'], mostFaults: 1, leaving: 1 },
      'a request that is over',
    ],
  ])('finds a broken promise where %s', (_, rule, bounds, violation) => {
    expect(search(bounds, { ...RULE, ...rule }).violation).toContain(violation);
  });

  it('needs a request to be known until its release is sent, and no longer', () => {
    const bounds: Bounds = {
      callers: [1, 1],
      faults: ['connection', 'notice'],
      mostFaults: 1,
      leaving: isLong ? 1 : 0,
    };
    const { violation, isComplete } = search(bounds, { ...RULE, known: 'until-acknowledged' });
    expect({ violation, isComplete }).toEqual({ violation: undefined, isComplete: true });
  });
});
