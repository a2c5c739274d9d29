import { describe, expect, it } from '@jest/globals';
import { type Entry, HELD, judged, OVER } from './hand-written.js';

const asks: readonly Entry[] = [
  [0, 'ask', 'w1/1.0.1'],
  [1, 'ask', 'w2/1.0.1'],
];

describe('the rule that nobody believes to hold behind a later holder', () => {
  /** `w1` was given the lock first, but is paused and enters after `w2`. */
  const refused = (first: object, then: object): readonly Entry[] => [
    ...asks,
    [300, 'enter', 'w2/1.0.1', { ...HELD, token: '2' }],
    [310, 'enter', 'w1/1.0.1', { ...first, token: '1', accepted: false }],
    [311, 'check', 'w1/1.0.1', { ...then, token: '1' }],
  ];

  it('is broken by who is refused at the door and claims to hold', async () => {
    expect((await judged(refused(HELD, HELD))).violations).toEqual(['overlap']);
  });

  it('is not by who finds at its next look that it holds no longer', async () => {
    expect((await judged(refused(HELD, OVER))).violations).toEqual([]);
    expect((await judged(refused(OVER, OVER))).violations).toEqual([]);
  });

  it('is given up where two holders are documented', async () => {
    const history: readonly Entry[] = [
      [200, 'begin', undefined, { nemesis: 'data lost', of: 'server' }],
      [210, 'end'],
      ...refused(HELD, HELD).map(([at, ...rest]): Entry => [at < 300 ? at : at - 50, ...rest]),
    ].sort(([one], [other]) => one - other) as readonly Entry[];
    expect(await judged(history, { allows: { 'data lost': ['overlap'] } })).toMatchObject({
      violations: [],
      excused: ['overlap'],
    });
  });
});
