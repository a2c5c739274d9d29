import { type Entry, HELD, judged, OVER } from './hand-written.js';

const attempt: Entry = [0, 'attempt', 'w1/1.0.1'];
const entered: readonly Entry[] = [attempt, [10, 'enter', 'w1/1.0.1', HELD]];

async function violations(...history: readonly Entry[]) {
  return (await judged(history)).violations;
}

describe('rule: waiters of a free key are served', () => {
  // The longest fault, followed by the documented time.
  const limit = 8_000 + 100;
  const gaveUp = (at: number): Entry => [at, 'failed', 'w1/1.0.1', { code: 'LOCK_BUSY' }];

  it('reports a caller that waits in vain while no other enters', async () => {
    expect(await violations(attempt, gaveUp(limit + 1))).toEqual(['stuck']);
  });

  it('accepts a caller that gives up earlier, or after others have entered', async () => {
    const other: readonly Entry[] = [
      [5_000, 'attempt', 'w2/1.0.1'],
      [5_001, 'enter', 'w2/1.0.1', HELD],
    ];
    expect(await violations(attempt, gaveUp(limit - 1))).toEqual([]);
    expect(await violations(attempt, ...other, gaveUp(limit + 1))).toEqual([]);
  });
});

it('reports an error that the situation excludes', async () => {
  const failed = (code: string): Entry => [10, 'failed', 'w1/1.0.1', { code, never: 'LOCK_BUSY' }];
  expect(await violations(attempt, failed('LOCK_BUSY'))).toEqual(['unexpected']);
  expect(await violations(attempt, failed('LOCK_UNAVAILABLE'))).toEqual([]);
});

describe('rule: nothing is left behind', () => {
  it('reports leaks found by the coordinator', async () => {
    expect(await violations([0, 'violation', undefined, { rule: 'leak', what: 'a key' }])).toEqual(['leak']);
  });

  it('accepts a caller that releases', async () => {
    expect(await violations(...entered, [11, 'done', 'w1/1.0.1', { result: 'released' }])).toEqual([]);
  });
});

describe('rule: the server ends the sessions of a dead process', () => {
  async function judgedAt(at: number, sessions: number) {
    const history: readonly Entry[] = [
      [1_000, 'gone', undefined, { worker: 'w1/x1/1' }],
      [at, 'sessions', undefined, { of: 'w1/x1/1', sessions }],
    ];
    return (await judged(history, { sessionsEndWithin: 5_000 })).violations;
  }

  it('reports sessions left after the documented time', async () => {
    expect(await judgedAt(6_001, 1)).toEqual(['sessions']);
  });

  it('accepts sessions that end in time, or have already ended', async () => {
    expect(await judgedAt(6_000, 2)).toEqual([]);
    expect(await judgedAt(6_001, 0)).toEqual([]);
  });
});

describe('rule: no lock is held past its lease', () => {
  const claims = (overdue: number): Entry => [20, 'check', 'w1/1.0.1', { ...HELD, overdue }];

  it('reports a claim after the end of the confirmed time', async () => {
    expect(await violations(...entered, claims(21))).toEqual(['late']);
  });

  it('allows for rounding, and accepts a holder that knows of its loss', async () => {
    expect(await violations(...entered, claims(20))).toEqual([]);
    expect(
      await violations(...entered, [20, 'check', 'w1/1.0.1', { held: false, remaining: 0, overdue: 500 }]),
    ).toEqual([]);
  });
});

describe('rule: releases have a documented result', () => {
  const ends = (result: string): Entry => [20, 'done', 'w1/1.0.1', { result }];

  it('reports any other result', async () => {
    expect(await violations(...entered, ends('not-held'))).toEqual(['release']);
  });

  it('accepts each of the three results', async () => {
    for (const result of ['released', 'lost', 'pending'])
      expect(await violations(...entered, ends(result))).toEqual([]);
  });
});

describe('rule: signal and release agree', () => {
  const ends = (last: typeof HELD, end: object) =>
    violations(...entered, [20, 'leave', 'w1/1.0.1', last], [21, 'done', 'w1/1.0.1', end]);

  it('reports a signal that misses a loss found by the holder, and a signal without a loss', async () => {
    expect(await ends(OVER, { result: 'lost', signaled: false })).toEqual(['signal']);
    expect(await ends(HELD, { result: 'released', signaled: true })).toEqual(['signal']);
  });

  it('accepts a signaled loss, a loss that only the release finds, and a lock without a signal', async () => {
    expect(await ends(OVER, { result: 'lost', signaled: true })).toEqual([]);
    expect(await ends(HELD, { result: 'lost', signaled: false })).toEqual([]);
    expect(await ends(HELD, { result: 'released', signaled: false })).toEqual([]);
    expect(await ends(OVER, { result: 'lost' })).toEqual([]);
  });
});

describe('rule: no caller releases the lock of another', () => {
  const ends = (result: string, subject: object = {}) =>
    judged(
      [
        [0, 'attempt', 'w1/1.0.1', { token: '1' }],
        [5, 'begin', undefined, { fault: 'pause', of: 'worker', target: 'w1' }],
        [10, 'enter', 'w1/1.0.1', { ...HELD, token: '1' }],
        [100, 'attempt', 'w2/1.0.1', { token: '2' }],
        [110, 'enter', 'w2/1.0.1', { ...HELD, token: '2' }],
        [120, 'leave', 'w1/1.0.1', { ...OVER, token: '1' }],
        [130, 'done', 'w1/1.0.1', { result }],
      ],
      subject,
    );

  it('reports a paused holder that releases successfully after a later holder entered', async () => {
    expect((await ends('released')).violations).toEqual(['release']);
  });

  it('accepts a holder that lost the lock, and is waived if two holders are documented', async () => {
    expect((await ends('lost')).violations).toEqual([]);
    expect((await ends('pending')).violations).toEqual([]);
    expect((await ends('released', { allows: { pause: ['overlap'] } })).violations).toEqual([]);
  });

  it('accepts a holder that left before the other entered', async () => {
    const { violations } = await judged([
      [0, 'attempt', 'w1/1.0.1'],
      [10, 'enter', 'w1/1.0.1', HELD],
      [20, 'leave', 'w1/1.0.1', HELD],
      [21, 'attempt', 'w2/1.0.1'],
      [22, 'enter', 'w2/1.0.1', HELD],
      [23, 'done', 'w1/1.0.1', { result: 'released' }],
    ]);
    expect(violations).toEqual([]);
  });
});

describe('rule: errors are documented', () => {
  const fails = (more: object): Entry => [20, 'failed', 'w1/1.0.1', more];

  it('reports any other error', async () => {
    expect(await violations(attempt, fails({ code: 'TypeError', unexpected: 'TypeError' }))).toEqual(['unexpected']);
  });

  it('accepts documented errors', async () => {
    expect(await violations(attempt, fails({ code: 'LOCK_UNAVAILABLE' }))).toEqual([]);
  });
});

const attempts: readonly Entry[] = [
  [0, 'attempt', 'w1/1.0.1'],
  [1, 'attempt', 'w2/1.0.1'],
];

describe('rule: no two holders are inside', () => {
  const inside = (entersAt: number, ...modes: readonly string[]) =>
    judged([
      [0, 'attempt', 'w1/1.0.1', { mode: modes[0] }],
      [1, 'attempt', 'w2/1.0.1', { mode: modes[1] }],
      [10, 'enter', 'w1/1.0.1', { ...HELD, mode: modes[0] }],
      [11, 'check', 'w1/1.0.1', { ...HELD, mode: modes[0] }],
      // The claim at 11 was made after 10, so it covers the time until 60.
      [entersAt, 'enter', 'w2/1.0.1', { ...HELD, mode: modes[1] }],
    ]);

  it('reports a caller that enters during the claim of a writer, and a writer that enters during the claim of a reader', async () => {
    expect((await inside(59, 'exclusive', 'exclusive')).violations).toEqual(['overlap']);
    expect((await inside(59, 'exclusive', 'shared')).violations).toEqual(['overlap']);
    expect((await inside(59, 'shared', 'exclusive')).violations).toEqual(['overlap']);
  });

  it('accepts a caller that enters after the claim, and concurrent readers', async () => {
    expect((await inside(60, 'exclusive', 'exclusive')).violations).toEqual([]);
    expect((await inside(20, 'shared', 'shared')).violations).toEqual([]);
  });
});

describe('a claim', () => {
  const entersAt = (time: number) =>
    judged([
      ...attempts,
      // Recorded long after it was sent, because the resource is busy.
      [30, 'sent', 'w1/1.0.1'],
      [31, 'enter', 'w1/1.0.1', HELD],
      [time, 'enter', 'w2/1.0.1', HELD],
    ]);

  it('counts from the last record that the caller waited for', async () => {
    expect((await entersAt(50)).violations).toEqual([]);
    expect((await entersAt(49)).violations).toEqual(['overlap']);
  });
});

describe('a caller that was paused before it entered, and then finds the lock lost', () => {
  const enters = (token: string | null) =>
    judged([
      ...attempts,
      [300, 'enter', 'w2/1.0.1', { ...HELD, token: token && '1' }],
      [310, 'enter', 'w1/1.0.1', { ...OVER, token: token && '2' }],
      [320, 'leave', 'w2/1.0.1', { ...HELD, token: token && '1' }],
      [321, 'done', 'w2/1.0.1', { result: 'released' }],
    ]);

  it('proves nothing without a token, because it may have held the lock earlier', async () => {
    expect((await enters(null)).violations).toEqual([]);
  });

  it('proves an overlap with a holder of a smaller token', async () => {
    expect((await enters('1')).violations).toContain('overlap');
  });
});

describe('rule: no caller claims the lock after a later holder has entered', () => {
  /** `w1` was granted the lock first, but was paused and enters after `w2`. */
  const refused = (first: object, then: object): readonly Entry[] => [
    ...attempts,
    [300, 'enter', 'w2/1.0.1', { ...HELD, token: '2' }],
    [310, 'enter', 'w1/1.0.1', { ...first, token: '1', accepted: false }],
    [311, 'check', 'w1/1.0.1', { ...then, token: '1' }],
  ];

  it('reports a caller that is refused and still claims to hold the lock', async () => {
    expect((await judged(refused(HELD, HELD))).violations).toEqual(['overlap']);
  });

  it('accepts a caller that finds the lock lost at its next check', async () => {
    expect((await judged(refused(HELD, OVER))).violations).toEqual([]);
    expect((await judged(refused(OVER, OVER))).violations).toEqual([]);
  });

  it('is waived if two holders are documented', async () => {
    const fault: Entry = [0, 'begin', undefined, { fault: 'data lost', of: 'server' }];
    const { violations, excused } = await judged([fault, ...refused(HELD, HELD)], {
      allows: { 'data lost': ['overlap'] },
    });
    expect({ violations, excused }).toEqual({ violations: [], excused: ['overlap'] });
  });
});

describe('two holders, documented under a fault', () => {
  /** Each holder believes it holds the lock until `until`; the second one enters at 200. */
  function both({ firstStart = 0, until = 250, fault = {}, subject = {} }) {
    const history: readonly Entry[] = [
      [firstStart, 'attempt', 'w1/1.0.1'],
      [100, 'begin', undefined, { fault: 'data lost', of: 'server', ...fault }],
      [120, 'end'],
      [firstStart + 1, 'enter', 'w1/1.0.1', { ...HELD, remaining: 300 }],
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

  it('are not excused if that holder had time to notice', async () => {
    expect((await both({ until: 310 })).violations).toEqual(['overlap']);
  });

  it('are not excused if that holder started after the fault', async () => {
    expect((await both({ firstStart: 130 })).violations).toEqual(['overlap', 'overlap']);
    expect((await both({ firstStart: 130, fault: { settle: 20 } })).violations).toEqual([]);
    expect((await both({ firstStart: 130, subject: { settle: 20 } })).violations).toEqual([]);
  });
});

it.each(['redis', 'redis-cluster', 'redis-sentinel', 'redlock', 'failover', 'memcached'])(
  'requires a holder on %s to notice its loss within a lease',
  async (name) => {
    const { noticedWithin, lifetime } = (await import(`../../chaos/subjects/${name}.mjs`)) as Record<string, number>;
    expect(noticedWithin).toBe(lifetime);
  },
);

const limited = (weight = 1, limit = 3) => ({ mode: 'limited', limit, weight });
const limitedAttempts = (...weights: readonly number[]): readonly Entry[] =>
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

describe('rule: limited holders stay within the limit', () => {
  it('accepts holders up to the limit', async () => {
    const history = [
      ...limitedAttempts(1, 2),
      enter(10, 1, '1'),
      enter(11, 2, '2'),
      check(12, 1, '1'),
      check(13, 2, '2'),
    ];
    expect((await judged(history)).violations).toEqual([]);
  });

  it('reports one more holder if all of them claim to hold the lock', async () => {
    const history = [
      ...limitedAttempts(1, 1, 2),
      enter(10, 1, '1'),
      enter(11, 2, '2'),
      check(12, 1, '1'),
      check(13, 2, '2'),
    ];
    expect((await judged([...history, enter(20, 3, '3')])).violations).toEqual(['limit']);
  });

  it('accepts one more holder after a claim has ended, unless that holder claims again later', async () => {
    const history = [
      ...limitedAttempts(2, 2),
      enter(10, 1, '1'),
      check(11, 1, '1'),
      enter(300, 2, '2'),
      check(301, 2, '2'),
    ];
    expect((await judged([...history, check(310, 1, '1', OVER)])).violations).toEqual([]);
    // A claim counts from the record before it, since it was certainly sent after that.
    expect((await judged([...history, check(310, 1, '1'), check(311, 1, '1')])).violations).toEqual(['limit']);
  });

  it('ignores a caller that finds after its entry that it no longer holds the lock', async () => {
    const history = [...limitedAttempts(2, 2), enter(10, 1, '1'), check(11, 1, '1'), enter(12, 2, '2', OVER)];
    expect((await judged(history)).violations).toEqual([]);
  });
});

it('reports limited holders together with readers or writers', async () => {
  for (const mode of ['shared', 'exclusive']) {
    const { violations } = await judged([
      ...limitedAttempts(1),
      [1, 'attempt', 'w2/1.0.1', { mode }],
      enter(10, 1, '1'),
      check(11, 1, '1'),
      [20, 'enter', 'w2/1.0.1', { ...HELD, mode, token: '2' }],
    ]);
    expect(violations).toEqual(['overlap']);
  }
});

describe('rule: limited waiters are not overtaken', () => {
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

  it('accepts limited holders in any order of entry if their tokens are in order of arrival', async () => {
    expect((await passed('1', '2')).violations).toEqual([]);
  });

  it('reports a limited holder that arrived later and was granted first', async () => {
    expect((await passed('2', '1')).violations).toEqual(['overtaken']);
  });
});

it('reports a token that another limited holder already has', async () => {
  const history = [...limitedAttempts(1, 1), enter(10, 1, '7'), check(11, 1, '7'), enter(20, 2, '7')];
  expect((await judged(history)).violations).toEqual(['token']);
});

it("lets later callers join an older caller of the waiter's own process, if each process has one place", async () => {
  const history = (first: string): Entry[] => [
    [0, 'attempt', first, limited()],
    [1, 'sent', first, limited()],
    [2, 'attempt', 'w1/1.0.1'],
    [3, 'sent', 'w1/1.0.1'],
    [2_000, 'attempt', 'w2/1.0.1'],
    [2_001, 'sent', 'w2/1.0.1'],
    [2_002, 'attempt', 'w2/1.1.1', limited()],
    [2_003, 'sent', 'w2/1.1.1', limited()],
    // The one cohort of another process that may overtake.
    [3_000, 'enter', 'w2/1.0.1', { ...HELD, token: '1' }],
    [3_001, 'leave', 'w2/1.0.1', { ...HELD, token: '1' }],
    [3_005, 'enter', first, { ...HELD, ...limited(), token: '2' }],
    [3_010, 'enter', 'w2/1.1.1', { ...HELD, ...limited(), token: '3' }],
  ];
  const fairness = { fair: 'cohorts' } as const;
  expect((await judged(history('w1/1.1.1'), fairness)).violations).toEqual([]);
  expect((await judged(history('w3/1.0.1'), fairness)).violations).toEqual(['overtaken']);
});

it('queues the next limited caller of a process when the previous one has entered, if each process has one place', async () => {
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
