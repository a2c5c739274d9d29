import { describe, expect, it } from '@jest/globals';
import { type Entry, HELD, judged, OVER } from './hand-written.js';

const asks: readonly Entry[] = [
  [0, 'ask', 'w1/1.0.1'],
  [1, 'ask', 'w2/1.0.1'],
];

describe('the rule that two are not inside', () => {
  const inside = (entersAt: number, ...modes: readonly string[]) =>
    judged([
      [0, 'ask', 'w1/1.0.1', { mode: modes[0] }],
      [1, 'ask', 'w2/1.0.1', { mode: modes[1] }],
      [10, 'enter', 'w1/1.0.1', { ...HELD, mode: modes[0] }],
      [11, 'check', 'w1/1.0.1', { ...HELD, mode: modes[0] }],
      // What was said at 11 was said after 10, so it claims the time until 60.
      [entersAt, 'enter', 'w2/1.0.1', { ...HELD, mode: modes[1] }],
    ]);

  it('is broken by who enters while a writer claims to hold, or writes while a reader does', async () => {
    expect((await inside(59, 'exclusive', 'exclusive')).violations).toEqual(['overlap']);
    expect((await inside(59, 'exclusive', 'shared')).violations).toEqual(['overlap']);
    expect((await inside(59, 'shared', 'exclusive')).violations).toEqual(['overlap']);
  });

  it('is kept by who enters after the claim, and by readers', async () => {
    expect((await inside(60, 'exclusive', 'exclusive')).violations).toEqual([]);
    expect((await inside(20, 'shared', 'shared')).violations).toEqual([]);
  });
});

describe('one that was paused on its way in, and finds there that it holds no longer', () => {
  const enters = (token: string | null) =>
    judged([
      ...asks,
      [300, 'enter', 'w2/1.0.1', { ...HELD, token: token && '1' }],
      [310, 'enter', 'w1/1.0.1', { ...OVER, token: token && '2' }],
      [320, 'leave', 'w2/1.0.1', { ...HELD, token: token && '1' }],
      [321, 'done', 'w2/1.0.1', { result: 'released' }],
    ]);

  it('accuses nobody without a token, since it may have held before', async () => {
    expect((await enters(null)).violations).toEqual([]);
  });

  it('accuses whom it has followed with a larger one', async () => {
    expect((await enters('1')).violations).toContain('overlap');
  });
});

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
    const fault: Entry = [0, 'begin', undefined, { nemesis: 'data lost', of: 'server' }];
    const { violations, excused } = await judged([fault, ...refused(HELD, HELD)], {
      allows: { 'data lost': ['overlap'] },
    });
    expect({ violations, excused }).toEqual({ violations: [], excused: ['overlap'] });
  });
});

describe('two holders that are documented under a fault', () => {
  /** Each of them believes to hold until `until`; the second one enters at 200. */
  function both({ firstAsks = 0, until = 250, fault = {}, subject = {} }) {
    const history: readonly Entry[] = [
      [firstAsks, 'ask', 'w1/1.0.1'],
      [100, 'begin', undefined, { nemesis: 'data lost', of: 'server', ...fault }],
      [120, 'end'],
      [firstAsks + 1, 'enter', 'w1/1.0.1', { ...HELD, remaining: 300 }],
      [190, 'ask', 'w2/1.0.1'],
      [200, 'enter', 'w2/1.0.1', HELD],
      [until, 'check', 'w1/1.0.1', HELD],
    ];
    const inOrder = [...history].sort(([one], [other]) => one - other);
    return judged(inOrder, { allows: { 'data lost': ['overlap'] }, toldWithin: 100, ...subject });
  }

  it('are forgiven while the one that was deprived cannot know', async () => {
    expect(await both({})).toMatchObject({ violations: [], excused: ['overlap', 'overlap'] });
  });

  it('are not when it had time to learn of its loss', async () => {
    expect((await both({ until: 310 })).violations).toEqual(['overlap']);
  });

  it('are not when the one that was deprived had asked after the fault', async () => {
    expect((await both({ firstAsks: 130 })).violations).toEqual(['overlap', 'overlap']);
    expect((await both({ firstAsks: 130, fault: { settle: 20 } })).violations).toEqual([]);
    expect((await both({ firstAsks: 130, subject: { settle: 20 } })).violations).toEqual([]);
  });
});

it.each(['redis', 'redis-cluster', 'redis-sentinel', 'redlock', 'failover', 'memcached'])(
  '%s has to tell a holder of its loss within a lease',
  async (name) => {
    const { toldWithin, lifetime } = (await import(`../../chaos/subjects/${name}.mjs`)) as Record<string, number>;
    expect(toldWithin).toBe(lifetime);
  },
);
