import { Confirmation } from '../../lib/providers/failover/confirmation.js';
import { firstRecord } from '../../lib/providers/failover/epoch-record.js';
import { exploration } from '../exploration.js';
import { type Bounds, RULE, type Rule, search } from './switch-model.js';

// 300 000 states in the long form. One more switch makes millions of them.
const BOUNDS: Bounds = { processes: 2, steps: exploration(4, 5), switches: 1, lostAnswers: 1 };

describe('the rule by which providers are switched, over everything that can happen to a small fleet', () => {
  it('never lets two processes believe in one lock', () => {
    const { states, violation } = search(BOUNDS, RULE);
    expect(violation).toBeUndefined();
    expect(states).toBeGreaterThan(100_000);
  }, 300_000);

  // What the search is worth: it finds what each part of the rule is for.
  it.each<[string, Partial<Rule>]>([
    ['without the wait after a switch', { settlesAt: () => -Infinity }],
    [
      'with a wait that is too short',
      { settlesAt: (confirmation) => confirmation.settlesAt - confirmation.window / 2 },
    ],
    [
      'with confirmations counted from their answers',
      { confirmed: (before, record, _, now) => before.confirmed(record, now, now) },
    ],
    [
      'with locks that are believed for longer',
      { validUntil: (confirmation, epoch) => confirmation.validUntil(epoch) + 300 },
    ],
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

  it('counts from the sending of a write, for its epoch alone: it ends when the process learns of a switch', () => {
    const confirmed = Confirmation.unknown(1_000).confirmed(first, 100, 150);
    expect([1, 2].map((epoch) => confirmed.validUntil(epoch))).toEqual([1_088, -Infinity]);
    const switched = confirmed.learned(second, 200);
    expect([1, 2].map((epoch) => switched.validUntil(epoch))).toEqual([-Infinity, -Infinity]);
  });

  it('of an earlier epoch has ended after the longest window of any process, and 1 % and 2 ms more', () => {
    expect(Confirmation.unknown(1_000).learned({ ...second, window: 3_000 }, 200).settlesAt).toBe(3_232);
    expect(Confirmation.unknown(1_000).learned({ ...second, settled: true }, 200).settlesAt).toBe(-Infinity);
  });
});
