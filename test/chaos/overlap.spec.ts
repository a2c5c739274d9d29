import { type Entry, HELD, judged, OVER } from './hand-written.js';

const attempts: readonly Entry[] = [
  [0, 'attempt', 'w1/1.0.1'],
  [1, 'attempt', 'w2/1.0.1'],
];

describe('the rule that no two holders are inside', () => {
  const inside = (entersAt: number, ...modes: readonly string[]) =>
    judged([
      [0, 'attempt', 'w1/1.0.1', { mode: modes[0] }],
      [1, 'attempt', 'w2/1.0.1', { mode: modes[1] }],
      [10, 'enter', 'w1/1.0.1', { ...HELD, mode: modes[0] }],
      [11, 'check', 'w1/1.0.1', { ...HELD, mode: modes[0] }],
      // The claim at 11 was made after 10, so it covers the time until 60.
      [entersAt, 'enter', 'w2/1.0.1', { ...HELD, mode: modes[1] }],
    ]);

  it('is broken by a caller that enters while a writer claims to hold, and by a writer that enters while a reader does', async () => {
    expect((await inside(59, 'exclusive', 'exclusive')).violations).toEqual(['overlap']);
    expect((await inside(59, 'exclusive', 'shared')).violations).toEqual(['overlap']);
    expect((await inside(59, 'shared', 'exclusive')).violations).toEqual(['overlap']);
  });

  it('is kept by a caller that enters after the claim, and by readers', async () => {
    expect((await inside(60, 'exclusive', 'exclusive')).violations).toEqual([]);
    expect((await inside(20, 'shared', 'shared')).violations).toEqual([]);
  });
});

describe('a claim', () => {
  const entersAt = (time: number) =>
    judged([
      ...attempts,
      // Recorded long after it was sent: the resource is busy.
      [30, 'sent', 'w1/1.0.1'],
      [31, 'enter', 'w1/1.0.1', HELD],
      [time, 'enter', 'w2/1.0.1', HELD],
    ]);

  it('counts from the last record that the caller has waited for', async () => {
    expect((await entersAt(50)).violations).toEqual([]);
    expect((await entersAt(49)).violations).toEqual(['overlap']);
  });
});

describe('a caller that was paused before it entered, and then finds that it lost the lock', () => {
  const enters = (token: string | null) =>
    judged([
      ...attempts,
      [300, 'enter', 'w2/1.0.1', { ...HELD, token: token && '1' }],
      [310, 'enter', 'w1/1.0.1', { ...OVER, token: token && '2' }],
      [320, 'leave', 'w2/1.0.1', { ...HELD, token: token && '1' }],
      [321, 'done', 'w2/1.0.1', { result: 'released' }],
    ]);

  it('proves nothing without a token, because it may have held before', async () => {
    expect((await enters(null)).violations).toEqual([]);
  });

  it('proves an overlap with a holder of a smaller token', async () => {
    expect((await enters('1')).violations).toContain('overlap');
  });
});

describe('the rule that nobody claims the lock after a later holder has entered', () => {
  /** `w1` was granted the lock first, but was paused and enters after `w2`. */
  const refused = (first: object, then: object): readonly Entry[] => [
    ...attempts,
    [300, 'enter', 'w2/1.0.1', { ...HELD, token: '2' }],
    [310, 'enter', 'w1/1.0.1', { ...first, token: '1', accepted: false }],
    [311, 'check', 'w1/1.0.1', { ...then, token: '1' }],
  ];

  it('is broken by a caller that is refused and still claims to hold', async () => {
    expect((await judged(refused(HELD, HELD))).violations).toEqual(['overlap']);
  });

  it('is kept by a caller that finds at its next check that it lost the lock', async () => {
    expect((await judged(refused(HELD, OVER))).violations).toEqual([]);
    expect((await judged(refused(OVER, OVER))).violations).toEqual([]);
  });

  it('is given up where two holders are documented', async () => {
    const fault: Entry = [0, 'begin', undefined, { fault: 'data lost', of: 'server' }];
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
      [firstAsks, 'attempt', 'w1/1.0.1'],
      [100, 'begin', undefined, { fault: 'data lost', of: 'server', ...fault }],
      [120, 'end'],
      [firstAsks + 1, 'enter', 'w1/1.0.1', { ...HELD, remaining: 300 }],
      [190, 'attempt', 'w2/1.0.1'],
      [200, 'enter', 'w2/1.0.1', HELD],
      [until, 'check', 'w1/1.0.1', HELD],
    ];
    const inOrder = [...history].sort(([one], [other]) => one - other);
    return judged(inOrder, { allows: { 'data lost': ['overlap'] }, noticedWithin: 100, ...subject });
  }

  it('are excused while the holder that lost the lock cannot know', async () => {
    expect(await both({})).toMatchObject({ violations: [], excused: ['overlap', 'overlap'] });
  });

  it('are not excused when it had time to notice', async () => {
    expect((await both({ until: 310 })).violations).toEqual(['overlap']);
  });

  it('are not excused when that holder asked after the fault', async () => {
    expect((await both({ firstAsks: 130 })).violations).toEqual(['overlap', 'overlap']);
    expect((await both({ firstAsks: 130, fault: { settle: 20 } })).violations).toEqual([]);
    expect((await both({ firstAsks: 130, subject: { settle: 20 } })).violations).toEqual([]);
  });
});

it.each(['redis', 'redis-cluster', 'redis-sentinel', 'redlock', 'failover', 'memcached'])(
  'a holder on %s must notice its loss within a lease',
  async (name) => {
    const { noticedWithin, lifetime } = (await import(`../../chaos/subjects/${name}.mjs`)) as Record<string, number>;
    expect(noticedWithin).toBe(lifetime);
  },
);
