import { type Bounds, type Rule, RULE, search } from './token-model.js';

/** A grant with two tokens, 2 and 3, of which the third node knows nothing yet. */
const GRANTED = [
  '0 asks with 2 to 3',
  '0 executes vote of 0',
  '1 executes vote of 0',
  '0 is answered by 0',
  '0 is answered by 1',
];
/** Another attempt of which nothing is known: it asks again, then for two callers. */
const ASKED_AGAIN: Bounds = {
  attempts: [[2], [1, 2]],
  after: [...GRANTED, '1 asks with 4 to 4', '1 has no answer in time'],
};

/** Each is gone through completely. */
const SHORT: readonly Bounds[] = [
  { attempts: [[2], [2]] },
  { attempts: [[2], [2]], breaks: 1, after: GRANTED },
  { attempts: [[2], [2]], losses: 1, clocks: [4, 0, 0], after: GRANTED },
  ASKED_AGAIN,
];

const LONG: readonly Bounds[] = [
  { attempts: [[2, 2]] },
  { attempts: [[2], [2]], breaks: 1, after: ['0 asks with 2 to 3'] },
  { attempts: [[3], [2]], raises: 1 },
  { attempts: [[2], [2]], losses: 1 },
  { attempts: [[2], [1], [2]], after: [...GRANTED, '2 executes vote of 0'] },
];

const isLong = process.env['LOCK_TESTS_LONG'] === '1';

describe('the model of blocks of tokens, which are agreed on by the votes of nodes', () => {
  it('never has a grant whose first token is not larger than the last one of each earlier grant', () => {
    const events = new Set<string>();
    for (const bounds of isLong ? [...SHORT, ...LONG] : SHORT) {
      const found = search(bounds);
      for (const event of found.events) events.add(event);
      expect({ bounds, violation: found.violation, steps: found.steps }).toEqual({ bounds, steps: [] });
    }
    // Else nothing was shown.
    expect([...events]).toEqual(
      expect.arrayContaining([
        'votes carry a block',
        'a block is written back',
        'a hold is found',
        'a node has lost its data',
      ]),
    );
  }, 3_600_000);

  // What the model is worth.
  it.each<[string, Partial<Rule>, Bounds]>([
    ['nodes compare the last token of a block', { compared: 'last' }, SHORT[0]!],
    ['a vote writes the first token of a block', { voted: 'first' }, SHORT[0]!],
    ['the write-back writes the first token of a block', { written: 'first' }, SHORT[0]!],
    ['a hold that is found has followers', { found: 'with-followers' }, ASKED_AGAIN],
  ])('finds one where %s', (_, rule, bounds) => {
    expect(search(bounds, { ...RULE, ...rule }).violation).toMatch(/^token \d+ after \d+$/);
  });
});
