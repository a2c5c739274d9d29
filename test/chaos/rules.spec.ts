import { type Entry, HELD, judged, OVER } from './hand-written.js';

const attempt: Entry = [0, 'attempt', 'w1/1.0.1'];
const entered: readonly Entry[] = [attempt, [10, 'enter', 'w1/1.0.1', HELD]];

async function violations(...history: readonly Entry[]) {
  return (await judged(history)).violations;
}

describe('the rule that waiters of a free key are served', () => {
  // The longest fault, and then the documented time.
  const limit = 8_000 + 100;
  const gaveUp = (at: number): Entry => [at, 'failed', 'w1/1.0.1', { code: 'LOCK_BUSY' }];

  it('is broken by a caller that waits in vain while nobody enters', async () => {
    expect(await violations(attempt, gaveUp(limit + 1))).toEqual(['stuck']);
  });

  it('is kept by a caller that gives up earlier, or after others have entered', async () => {
    const other: readonly Entry[] = [
      [5_000, 'attempt', 'w2/1.0.1'],
      [5_001, 'enter', 'w2/1.0.1', HELD],
    ];
    expect(await violations(attempt, gaveUp(limit - 1))).toEqual([]);
    expect(await violations(attempt, ...other, gaveUp(limit + 1))).toEqual([]);
  });
});

it('an outcome that its situation excludes is not expected', async () => {
  const failed = (code: string): Entry => [10, 'failed', 'w1/1.0.1', { code, never: 'LOCK_BUSY' }];
  expect(await violations(attempt, failed('LOCK_BUSY'))).toEqual(['unexpected']);
  expect(await violations(attempt, failed('LOCK_UNAVAILABLE'))).toEqual([]);
});

describe('the rule that nothing remains', () => {
  it('is broken by what the coordinator reports', async () => {
    expect(await violations([0, 'violation', undefined, { rule: 'leak', what: 'a key' }])).toEqual(['leak']);
  });

  it('is kept by a caller that releases', async () => {
    expect(await violations(...entered, [11, 'done', 'w1/1.0.1', { result: 'released' }])).toEqual([]);
  });
});

describe('the rule that the server ends the sessions of a dead process', () => {
  async function judgedAt(at: number, sessions: number) {
    const history: readonly Entry[] = [
      [1_000, 'gone', undefined, { worker: 'w1/x1/1' }],
      [at, 'sessions', undefined, { of: 'w1/x1/1', sessions }],
    ];
    return (await judged(history, { sessionsEndWithin: 5_000 })).violations;
  }

  it('is broken by sessions that are left after the documented time', async () => {
    expect(await judgedAt(6_001, 1)).toEqual(['sessions']);
  });

  it('is kept by sessions that end in time, or have ended', async () => {
    expect(await judgedAt(6_000, 2)).toEqual([]);
    expect(await judgedAt(6_001, 0)).toEqual([]);
  });
});

describe('the rule that no lock is held for longer than its lease', () => {
  const claims = (overdue: number): Entry => [20, 'check', 'w1/1.0.1', { ...HELD, overdue }];

  it('is broken by a claim after the confirmed time is over', async () => {
    expect(await violations(...entered, claims(21))).toEqual(['late']);
  });

  it('allows for rounding, and is kept by a holder that knows of its loss', async () => {
    expect(await violations(...entered, claims(20))).toEqual([]);
    expect(
      await violations(...entered, [20, 'check', 'w1/1.0.1', { held: false, remaining: 0, overdue: 500 }]),
    ).toEqual([]);
  });
});

describe('the rule that a release has a documented outcome', () => {
  const ends = (result: string): Entry => [20, 'done', 'w1/1.0.1', { result }];

  it('is broken by any other answer', async () => {
    expect(await violations(...entered, ends('not-held'))).toEqual(['release']);
  });

  it('is kept by each of the three', async () => {
    for (const result of ['released', 'lost', 'pending'])
      expect(await violations(...entered, ends(result))).toEqual([]);
  });
});

describe('the rule that the signal and the release agree', () => {
  const ends = (last: typeof HELD, end: object) =>
    violations(...entered, [20, 'leave', 'w1/1.0.1', last], [21, 'done', 'w1/1.0.1', end]);

  it('is broken by a signal that misses a loss which its holder found, and by a signal without a loss', async () => {
    expect(await ends(OVER, { result: 'lost', signaled: false })).toEqual(['signal']);
    expect(await ends(HELD, { result: 'released', signaled: true })).toEqual(['signal']);
  });

  it('is kept by a signal that reports the loss, by a loss that only the release finds, and by a lock without a signal', async () => {
    expect(await ends(OVER, { result: 'lost', signaled: true })).toEqual([]);
    expect(await ends(HELD, { result: 'lost', signaled: false })).toEqual([]);
    expect(await ends(HELD, { result: 'released', signaled: false })).toEqual([]);
    expect(await ends(OVER, { result: 'lost' })).toEqual([]);
  });
});

describe('the rule that nobody releases the lock of somebody else', () => {
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

  it('is broken by a paused holder that releases successfully after a later holder entered', async () => {
    expect((await ends('released')).violations).toEqual(['release']);
  });

  it('is kept by a holder that lost the lock, and given up where two holders are documented', async () => {
    expect((await ends('lost')).violations).toEqual([]);
    expect((await ends('pending')).violations).toEqual([]);
    expect((await ends('released', { allows: { pause: ['overlap'] } })).violations).toEqual([]);
  });

  it('is kept by a holder that left before the other entered', async () => {
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

describe('the rule that errors are documented', () => {
  const fails = (more: object): Entry => [20, 'failed', 'w1/1.0.1', more];

  it('is broken by any other', async () => {
    expect(await violations(attempt, fails({ code: 'TypeError', unexpected: 'TypeError' }))).toEqual(['unexpected']);
  });

  it('is kept by documented ones', async () => {
    expect(await violations(attempt, fails({ code: 'LOCK_UNAVAILABLE' }))).toEqual([]);
  });
});
