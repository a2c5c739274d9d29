import { type Entry, HELD, judged, OVER } from './hand-written.js';

const limited = (weight = 1, limit = 3) => ({ mode: 'limited', limit, weight });
const attempts = (...weights: readonly number[]): readonly Entry[] =>
  weights.map((weight, index): Entry => [index, 'attempt', `w${index + 1}/1.0.1`, limited(weight)]);
const enter = (at: number, worker: number, token: string, claim: object = HELD): Entry => [
  at,
  'enter',
  `w${worker}/1.0.1`,
  { ...claim, ...limited(), token },
];
const check = (at: number, worker: number, token: string, claim: object = HELD): Entry => [
  at,
  'check',
  `w${worker}/1.0.1`,
  { ...claim, ...limited(), token },
];

describe('the rule that limited holders take no more than the limit', () => {
  it('is kept up to the limit', async () => {
    const history = [...attempts(1, 2), enter(10, 1, '1'), enter(11, 2, '2'), check(12, 1, '1'), check(13, 2, '2')];
    expect((await judged(history)).violations).toEqual([]);
  });

  it('is broken by one more, if all of them claim to hold', async () => {
    const history = [...attempts(1, 1, 2), enter(10, 1, '1'), enter(11, 2, '2'), check(12, 1, '1'), check(13, 2, '2')];
    expect((await judged([...history, enter(20, 3, '3')])).violations).toEqual(['limit']);
  });

  it('is kept by one more after a claim has ended, unless that holder still claims later', async () => {
    const history = [...attempts(2, 2), enter(10, 1, '1'), check(11, 1, '1'), enter(300, 2, '2'), check(301, 2, '2')];
    expect((await judged([...history, check(310, 1, '1', OVER)])).violations).toEqual([]);
    // A claim counts from the record before it, since it was surely sent after that.
    expect((await judged([...history, check(310, 1, '1'), check(311, 1, '1')])).violations).toEqual(['limit']);
  });

  it('says nothing of a caller that finds after its entry that it holds nothing', async () => {
    const history = [...attempts(2, 2), enter(10, 1, '1'), check(11, 1, '1'), enter(12, 2, '2', OVER)];
    expect((await judged(history)).violations).toEqual([]);
  });
});

it('limited holders exclude readers and writers', async () => {
  for (const mode of ['shared', 'exclusive']) {
    const { violations } = await judged([
      ...attempts(1),
      [1, 'attempt', 'w2/1.0.1', { mode }],
      enter(10, 1, '1'),
      check(11, 1, '1'),
      [20, 'enter', 'w2/1.0.1', { ...HELD, mode, token: '2' }],
    ]);
    expect(violations).toEqual(['overlap']);
  }
});

describe('the order of limited holders', () => {
  const passed = (first: string, second: string) =>
    judged(
      [
        [0, 'attempt', 'w1/1.0.1', limited()],
        [1, 'sent', 'w1/1.0.1', limited()],
        [2_000, 'attempt', 'w2/1.0.1', limited()],
        [2_001, 'sent', 'w2/1.0.1', limited()],
        enter(3_000, 2, second),
        enter(3_010, 1, first),
      ],
      { fair: true },
    );

  it('is that of their tokens: those that are granted together enter in any order', async () => {
    expect((await passed('1', '2')).violations).toEqual([]);
  });

  it('is broken by one that came later and was granted first', async () => {
    expect((await passed('2', '1')).violations).toEqual(['overtaken']);
  });
});

it('the rule that tokens grow is broken by a token that another limited holder has', async () => {
  const history = [...attempts(1, 1), enter(10, 1, '7'), check(11, 1, '7'), enter(20, 2, '7')];
  expect((await judged(history)).violations).toEqual(['token']);
});

it('where a process has one place in the queue, its next limited caller is queued when the one before has entered', async () => {
  const history = (second: string): Entry[] => [
    [0, 'attempt', 'w1/1.0.1', limited()],
    [1, 'sent', 'w1/1.0.1', limited()],
    [2, 'attempt', second, limited()],
    [3, 'sent', second, limited()],
    [2_000, 'attempt', 'w2/1.0.1', limited()],
    [2_001, 'sent', 'w2/1.0.1', limited()],
    enter(3_000, 1, '1'),
    enter(3_010, 2, '2'),
    [3_020, 'enter', second, { ...HELD, ...limited(), token: '3' }],
  ];
  expect((await judged(history('w1/1.1.1'), { fair: 'processes' })).violations).toEqual([]);
  expect((await judged(history('w3/1.0.1'), { fair: 'processes' })).violations).toEqual(['overtaken']);
  expect((await judged(history('w1/1.1.1'), { fair: true })).violations).toEqual(['overtaken']);
});
