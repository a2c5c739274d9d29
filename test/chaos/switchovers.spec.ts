import { type Entry, HELD, judged, OVER } from './hand-written.js';

// Plain JavaScript without types, like the programs.
const SUBJECTS: string = '../../chaos/subjects/index.mjs';

/**
 * All locks are lost at 100, and their holders must have noticed by 160. A lock lasts for 100 after its confirmation.
 */
const BEGIN: Entry = [100, 'begin', undefined, { fault: 'switchover', of: 'server' }];
const SUBJECT = { allows: { switchover: ['overlap'] }, noticedWithin: 60, lostAtBegin: { switchover: 60 } };

function judge(...history: readonly Entry[]) {
  return judged(
    [BEGIN, ...history].sort(([one], [other]) => one - other),
    SUBJECT,
  );
}

describe('a fault that takes all locks when it begins', () => {
  const starts = (at: number): readonly Entry[] => [
    [at, 'attempt', 'w1/1.0.1'],
    [at + 1, 'enter', 'w1/1.0.1', { ...HELD, remaining: 10 }],
  ];
  const claims = (at: number): Entry => [at, 'check', 'w1/1.0.1', { ...HELD, remaining: 300 }];
  const otherEnters = (at: number): readonly Entry[] => [
    [at - 1, 'attempt', 'w2/1.0.1'],
    [at, 'enter', 'w2/1.0.1', HELD],
  ];

  it('excuses claims made before the holder must have noticed', async () => {
    const excused = { violations: [], excused: ['overlap'] };
    expect(await judge(...starts(50), claims(159), ...otherEnters(200))).toMatchObject(excused);
    expect(await judge(...starts(50), ...otherEnters(110), claims(159))).toMatchObject(excused);
  });

  it('excuses no later claim, however soon after the other holder entered', async () => {
    expect((await judge(...starts(50), claims(161), ...otherEnters(170))).violations).toEqual(['overlap']);
    expect((await judge(...starts(50), ...otherEnters(155), claims(161))).violations).toEqual(['overlap']);
  });

  it('excuses no claim that outlasts the lifetime of a lock', async () => {
    expect((await judge(...starts(50), claims(150), ...otherEnters(201))).violations).toEqual(['overlap']);
  });

  it('excuses no lock requested after the fault began', async () => {
    expect((await judge(...starts(101), claims(110), ...otherEnters(120))).violations).toEqual(['overlap']);
  });

  it('excuses no overlap before the fault began, even if it is claimed later', async () => {
    expect((await judge(...starts(50), claims(60), ...otherEnters(70))).violations).toEqual(['overlap']);
    expect((await judge(...starts(50), ...otherEnters(70), claims(150))).violations).toEqual(['overlap']);
  });

  it('blames a holder that is still served by the old server for each claim and for its release', async () => {
    const kept = await judge(...starts(50), ...otherEnters(250), ...[claims(300), claims(350)], [
      360,
      'done',
      'w1/1.0.1',
      { result: 'released' },
    ]);
    expect(kept).toMatchObject({ violations: ['overlap', 'overlap', 'release'], excused: [] });
  });

  it('excuses a write during that time only if one of the two holders has no token', async () => {
    const writes = (at: number): Entry => [
      at,
      'write',
      'w1/1.0.1',
      { ...HELD, token: '7', remaining: 300, accepted: true },
    ];
    const fenced = (token: string | null): readonly Entry[] => [
      [50, 'attempt', 'w1/1.0.1'],
      [51, 'enter', 'w1/1.0.1', { ...HELD, token: '7', remaining: 10 }],
      [109, 'attempt', 'w2/1.0.1'],
      [110, 'enter', 'w2/1.0.1', { ...HELD, token }],
    ];
    expect((await judge(...fenced(null), writes(150))).violations).toEqual([]);
    expect((await judge(...fenced(null), writes(161))).violations).toContain('stale');
    expect((await judge(...fenced('8'), writes(150))).violations).toEqual(['stale']);
  });

  it('ignores a holder that has noticed its loss', async () => {
    const noticed = await judge(
      ...starts(50),
      ...otherEnters(250),
      [300, 'check', 'w1/1.0.1', OVER],
      [310, 'done', 'w1/1.0.1', { result: 'lost', signaled: true }],
    );
    expect(noticed).toMatchObject({ violations: [], excused: [] });
  });
});

interface Subject {
  readonly faults: readonly string[];
  readonly allows: Readonly<Record<string, readonly string[]>>;
  readonly lostAtBegin: Readonly<Record<string, number>>;
  readonly lifetime: number;
  readonly calm: readonly [number, number];
}

describe.each(['', '-postgres'])('a subject with a replica: typeorm-…-switchover%s', (suffix) => {
  const load = async (kind: string) => {
    const { subjects } = (await import(SUBJECTS)) as { subjects: Record<string, Subject> };
    return subjects[`typeorm-${kind}-switchover${suffix}`]!;
  };

  it.each(['row', 'advisory'])('waives only what %s locks lose at the beginning of a switchover', async (kind) => {
    const { allows, lostAtBegin, lifetime, calm } = await load(kind);
    expect(Object.keys(allows)).toEqual(Object.keys(lostAtBegin).slice(0, Object.keys(allows).length));
    for (const [fault, rules] of Object.entries(allows)) {
      expect(rules).toEqual(['overlap']);
      expect(lostAtBegin[fault]).toBeLessThan(lifetime);
    }
    // An earlier fault excuses anything within one lifetime after its end.
    expect(calm[0]).toBeGreaterThanOrEqual(lifetime);
  });

  it('waives nothing for version locks', async () => {
    expect((await load('version')).allows).toEqual({});
  });
});
