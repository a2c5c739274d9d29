import { describe, expect, it } from '@jest/globals';
import { type Entry, HELD, judged, OVER } from './hand-written.js';

const asked: Entry = [0, 'ask', 'w1/1.0.1'];
const entered: readonly Entry[] = [asked, [10, 'enter', 'w1/1.0.1', HELD]];

async function violations(...history: readonly Entry[]) {
  return (await judged(history)).violations;
}

describe('the rule that waiters of a free key are served', () => {
  // After the longest fault there is, and the time that the documentation gives.
  const patience = 8_000 + 100;
  const gaveUp = (at: number): Entry => [at, 'failed', 'w1/1.0.1', { code: 'LOCK_BUSY' }];

  it('is broken by who waits in vain while nobody enters', async () => {
    expect(await violations(asked, gaveUp(patience + 1))).toEqual(['stuck']);
  });

  it('is kept by who gives up before, or after others have entered', async () => {
    const other: readonly Entry[] = [
      [5_000, 'ask', 'w2/1.0.1'],
      [5_001, 'enter', 'w2/1.0.1', HELD],
    ];
    expect(await violations(asked, gaveUp(patience - 1))).toEqual([]);
    expect(await violations(asked, ...other, gaveUp(patience + 1))).toEqual([]);
  });
});

describe('the rule that nothing is left', () => {
  it('is broken by what the coordinator has found', async () => {
    expect(await violations([0, 'finding', undefined, { rule: 'leak', what: 'a key' }])).toEqual(['leak']);
  });

  it('is kept by who releases', async () => {
    expect(await violations(...entered, [11, 'done', 'w1/1.0.1', { result: 'released' }])).toEqual([]);
  });
});

describe('the rule that no lock is held for longer than its lease', () => {
  const claims = (overdue: number): Entry => [20, 'check', 'w1/1.0.1', { ...HELD, overdue }];

  it('is broken by a claim after the last confirmation has run out', async () => {
    expect(await violations(...entered, claims(21))).toEqual(['late']);
  });

  it('is kept but for what is lost by rounding, and by who holds no longer', async () => {
    expect(await violations(...entered, claims(20))).toEqual([]);
    expect(
      await violations(...entered, [20, 'check', 'w1/1.0.1', { held: false, remaining: 0, overdue: 500 }]),
    ).toEqual([]);
  });
});

describe('the rule that a release says what came of the lock', () => {
  const ends = (result: string): Entry => [20, 'done', 'w1/1.0.1', { result }];

  it('is broken by any other answer', async () => {
    expect(await violations(...entered, ends('not-held'))).toEqual(['unbalanced']);
  });

  it('is kept by each of the three', async () => {
    for (const result of ['released', 'lost', 'pending'])
      expect(await violations(...entered, ends(result))).toEqual([]);
  });
});

describe('the rule that the signal tells what the release tells', () => {
  const ends = (last: typeof HELD, end: object) =>
    violations(...entered, [20, 'leave', 'w1/1.0.1', last], [21, 'done', 'w1/1.0.1', end]);

  it('is broken by a signal that does not tell what its holder has found, and by one that tells of no loss', async () => {
    expect(await ends(OVER, { result: 'lost', told: false })).toEqual(['untold']);
    expect(await ends(HELD, { result: 'released', told: true })).toEqual(['untold']);
  });

  it('is kept by one that tells, by what only the release has found, and by who has no signal', async () => {
    expect(await ends(OVER, { result: 'lost', told: true })).toEqual([]);
    expect(await ends(HELD, { result: 'lost', told: false })).toEqual([]);
    expect(await ends(HELD, { result: 'released', told: false })).toEqual([]);
    expect(await ends(OVER, { result: 'lost' })).toEqual([]);
  });
});

describe('the rule that a lock is not released that somebody else has', () => {
  const ends = (result: string, subject: object = {}) =>
    judged(
      [
        [0, 'ask', 'w1/1.0.1', { token: '1' }],
        [5, 'begin', undefined, { nemesis: 'pause', of: 'worker', target: 'w1' }],
        [10, 'enter', 'w1/1.0.1', { ...HELD, token: '1' }],
        [100, 'ask', 'w2/1.0.1', { token: '2' }],
        [110, 'enter', 'w2/1.0.1', { ...HELD, token: '2' }],
        [120, 'leave', 'w1/1.0.1', { ...OVER, token: '1' }],
        [130, 'done', 'w1/1.0.1', { result }],
      ],
      subject,
    );

  it('is broken by who was paused, followed, and has released it all the same', async () => {
    expect((await ends('released')).violations).toEqual(['unbalanced']);
  });

  it('is kept by who has lost it, and given up where two holders are documented', async () => {
    expect((await ends('lost')).violations).toEqual([]);
    expect((await ends('pending')).violations).toEqual([]);
    expect((await ends('released', { allows: { pause: ['overlap'] } })).violations).toEqual([]);
  });

  it('is kept by who has left before the other one entered', async () => {
    const { violations } = await judged([
      [0, 'ask', 'w1/1.0.1'],
      [10, 'enter', 'w1/1.0.1', HELD],
      [20, 'leave', 'w1/1.0.1', HELD],
      [21, 'ask', 'w2/1.0.1'],
      [22, 'enter', 'w2/1.0.1', HELD],
      [23, 'done', 'w1/1.0.1', { result: 'released' }],
    ]);
    expect(violations).toEqual([]);
  });
});

describe('the rule that errors are of a documented kind', () => {
  const fails = (more: object): Entry => [20, 'failed', 'w1/1.0.1', more];

  it('is broken by any other', async () => {
    expect(await violations(asked, fails({ code: 'TypeError', unexpected: 'TypeError' }))).toEqual(['unexpected']);
  });

  it('is kept by those', async () => {
    expect(await violations(asked, fails({ code: 'LOCK_UNAVAILABLE' }))).toEqual([]);
  });
});
