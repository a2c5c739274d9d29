import { type Entry, HELD, judged } from './hand-written.js';

interface Checker {
  observe(entry: object): void;
  readonly violations: readonly { readonly rule: string }[];
}

// Plain JavaScript without types, like the programs.
const CHECKER: string = '../../chaos/judge/checker.mjs';

let Checker: new (subject: object) => Checker;
beforeAll(async () => {
  ({ Checker } = (await import(CHECKER)) as { Checker: typeof Checker });
});

describe('rule: no stale writes', () => {
  /** `w1` writes after `w2` has entered. */
  function judged(token: string | null, held: boolean, later = token && '2', { allows = {}, isPaused = false } = {}) {
    const checker = new Checker({ fair: false, allows, lifetime: 100, recovery: 100 });
    const observe = (at: number, event: string, worker: string, more: object = {}) => {
      checker.observe({
        at,
        event,
        op: `${worker}/1.0.1`,
        key: 'a',
        mode: 'exclusive',
        token,
        accepted: true,
        ...more,
      });
    };
    for (const worker of ['w1', 'w2']) observe(0, 'attempt', worker);
    observe(10, 'enter', 'w1', { held: true, remaining: 50 });
    checker.observe({ at: 50, event: 'begin', fault: 'FLUSHALL', of: 'server', target: 'server' });
    checker.observe({ at: 60, event: 'end', fault: 'FLUSHALL' });
    observe(100, 'enter', 'w2', { token: later, held: true, remaining: 50 });
    // A pause delays a write until after its check.
    if (!isPaused) observe(105, 'check', 'w1', { held, remaining: held ? 20 : 0, overdue: held ? -20 : 50 });
    observe(110, 'write', 'w1', { held, remaining: held ? 20 : 0, overdue: held ? -20 : 50 });
    return checker.violations.map(({ rule }) => rule);
  }

  it('reports a write that is accepted after a later holder entered', () => {
    expect(judged('1', false)).toContain('stale');
    expect(judged('1', true)).toContain('stale');
    expect(judged(null, true)).toContain('stale');
  });

  it('excuses a holder without a token that knows of its loss', () => {
    expect(judged(null, false)).toEqual([]);
  });

  it('excuses a delayed write only if it has no token', () => {
    expect(judged(null, true, null, { isPaused: true })).toEqual([]);
    expect(judged('1', true, '2', { isPaused: true })).toContain('stale');
  });

  it('excuses a write without a token if the fault may cause two holders', () => {
    const allows = { FLUSHALL: ['overlap'] };
    expect(judged(null, true, null, { allows })).not.toContain('stale');
    expect(judged('1', true, '2', { allows })).toContain('stale');
    expect(judged(null, true, null, { allows: { 'CLIENT KILL': ['overlap'] } })).toContain('stale');
  });

  it('excuses a write after a later holder without a token, such as a limited one, if the writer knows of its loss', () => {
    expect(judged('1', false, null)).toEqual([]);
    expect(judged('1', true, null)).toContain('stale');
  });
});

describe('rule: no waiter is overtaken', () => {
  /**
   * `w2` makes a request while another caller of its own process has the lock. Then `w3` makes a request, and enters
   * first.
   */
  function judged(
    fair: boolean | 'processes' | 'cohorts',
    { otherLeaves = 0, laterAt = 600, fault = {}, wait = 1_000 },
  ) {
    const checker = new Checker({ fair, allows: {}, lifetime: 100, recovery: 100, settle: 50 });
    const observe = (at: number, event: string, worker: string, more: object = {}) => {
      checker.observe({ at, event, op: `${worker}/1.0.1`, key: 'a', mode: 'exclusive', ...more });
    };
    observe(0, 'attempt', 'other', { op: 'w2/1.1.1' });
    observe(0, 'attempt', 'w2', { wait });
    observe(1, 'sent', 'w2');
    checker.observe({ at: 2, event: 'begin', ...fault });
    observe(otherLeaves, 'failed', 'other', { op: 'w2/1.1.1', code: 'ABORTED' });
    observe(laterAt, 'attempt', 'w3');
    observe(laterAt + 1, 'enter', 'w3', { accepted: true, token: null, held: true, remaining: 50 });
    return checker.violations.map(({ rule }) => rule);
  }
  const none = { fault: 'none', of: 'worker', target: 'w9' };

  it.each([true, 'processes'] as const)(
    'reports a caller that arrived half a second later but entered first (fair: %s)',
    (fair) => {
      expect(judged(fair, { otherLeaves: 3, fault: none })).toEqual(['overtaken']);
      expect(judged(fair, { otherLeaves: 3, fault: none, laterAt: 400 })).toEqual([]);
    },
  );

  it('allows one cohort of each other process to overtake a waiter if the subject has cohorts', () => {
    const entered = (fair: boolean | 'cohorts', entries: readonly (readonly [at: number, worker: string])[]) => {
      const checker = new Checker({ fair, allows: {}, lifetime: 100, recovery: 100 });
      const observe = (at: number, event: string, op: string, more: object = {}) => {
        checker.observe({ at, event, op, key: 'a', mode: 'exclusive', ...more });
      };
      observe(0, 'attempt', 'waiter/1.0.1');
      observe(1, 'sent', 'waiter/1.0.1');
      const held = { accepted: true, token: null, held: true, remaining: 1 };
      entries.forEach(([, worker], index) => observe(700, 'attempt', `${worker}/1.${index}.1`));
      entries.forEach(([at, worker], index) => {
        const op = `${worker}/1.${index}.1`;
        observe(at, 'enter', op, held);
        observe(at + 1, 'left', op);
      });
      return checker.violations.map(({ rule }) => rule).filter((rule) => rule === 'overtaken');
    };
    const cohort = [
      [800, 'w2'],
      [805, 'w2'],
      [809, 'w2'],
    ] as const;
    expect(entered('cohorts', cohort)).toEqual([]);
    expect(entered('cohorts', [...cohort, [812, 'w3'], [815, 'w3']])).toEqual([]);
    expect(entered(true, cohort)).toHaveLength(3);
    // A second cohort of the same process: after another process, or later than a cohort may admit callers.
    expect(entered('cohorts', [...cohort, [812, 'w3'], [815, 'w2']])).toEqual(['overtaken']);
    expect(entered('cohorts', [...cohort, [950, 'w2']])).toEqual(['overtaken']);
  });

  it('counts one place in the queue for each process if the subject does', () => {
    expect(judged(true, { otherLeaves: 300, fault: none })).toEqual(['overtaken']);
    expect(judged('processes', { otherLeaves: 300, fault: none })).toEqual([]);
  });

  it('allows waiting readers of one process to enter together if each process has one place', () => {
    /** `w1` has a reader in the queue before the writer of `w2`, and another reader that arrives long after it. */
    const readers = (fair: boolean | 'processes', secondStart: number, entering: readonly string[]) => {
      const checker = new Checker({ fair, allows: {}, lifetime: 100, recovery: 100 });
      const observe = (at: number, event: string, op: string, more: object = {}) => {
        checker.observe({ at, event, op, key: 'a', ...more });
      };
      const held = { accepted: true, token: '7', held: true, remaining: 50, mode: 'shared' };
      const begin: (readonly [number, string, string, string])[] = [
        [0, 'attempt', 'w1/1.0.1', 'shared'],
        [1, 'sent', 'w1/1.0.1', 'shared'],
        [10, 'attempt', 'w2/1.0.1', 'exclusive'],
        [11, 'sent', 'w2/1.0.1', 'exclusive'],
        [secondStart, 'attempt', 'w1/1.1.1', 'shared'],
      ];
      const enter = entering.map((op, index) => [800 + index, 'enter', op, 'shared'] as const);
      const entries = [...begin, ...enter].sort(([one], [other]) => one - other);
      for (const [at, event, op, mode] of entries) observe(at, event, op, event === 'enter' ? held : { mode });
      return checker.violations.map(({ rule }) => rule);
    };
    const inOrder = ['w1/1.0.1', 'w1/1.1.1'];
    expect(readers('processes', 700, inOrder)).toEqual([]);
    expect(readers('processes', 700, inOrder.toReversed())).toEqual([]);
    expect(readers(true, 700, inOrder)).toEqual(['overtaken']);
    // A reader that arrives after the first of them entered waits behind the writer.
    expect(readers('processes', 800.5, inOrder)).toEqual(['overtaken']);
  });

  it('ignores a caller that does not wait', () => {
    expect(judged(true, { otherLeaves: 3, fault: none, wait: 0 })).toEqual([]);
  });

  it('does not apply while a fault affects the waiter', () => {
    expect(judged(true, { otherLeaves: 3, fault: { ...none, target: 'w2' } })).toEqual([]);
    expect(judged(true, { otherLeaves: 3, fault: { ...none, of: 'server' } })).toEqual([]);
  });
});

describe('rule: tokens grow', () => {
  /** Callers that start together and hold the lock one after the other, or at the same time if they are readers. */
  function together(...holders: readonly { readonly token: string; readonly mode?: 'shared' }[]) {
    const callers = holders.map((holder, index) => ({ name: `w1/1.${index}.1`, holder, start: 10 + 10 * index }));
    const attempts = callers.map(({ name, holder }): Entry => [0, 'attempt', name, holder]);
    const sections = callers.flatMap(({ name, holder, start }): Entry[] => [
      [start, 'enter', name, { ...HELD, ...holder }],
      [start + 5, 'leave', name, { ...HELD, ...holder }],
      [start + 6, 'done', name, { result: 'released' }],
    ]);
    return judged([...attempts, ...sections]);
  }

  it('reports a repeated token, even if both callers started before either entered', async () => {
    expect((await together({ token: '7' }, { token: '7' })).violations).toEqual(['token']);
    expect((await together({ token: '7', mode: 'shared' }, { token: '7' })).violations).toEqual(['token']);
  });

  it('reports a smaller token', async () => {
    expect((await together({ token: '7' }, { token: '6' })).violations).toEqual(['token']);
    expect((await together({ token: '7' }, { token: '6', mode: 'shared' })).violations).toEqual(['token']);
  });

  it('accepts growing tokens, and readers that share tokens or enter in any order', async () => {
    expect((await together({ token: '7' }, { token: '8' }, { token: '10' })).violations).toEqual([]);
    const readers = ['8', '8', '7', '9'].map((token) => ({ token, mode: 'shared' as const }));
    expect((await together({ token: '6' }, ...readers, { token: '10' })).violations).toEqual([]);
  });

  it('reports a smaller token of a caller that started after another entered, even if it is refused', async () => {
    const { violations } = await judged([
      [0, 'attempt', 'w1/1.0.1'],
      [1, 'enter', 'w1/1.0.1', { ...HELD, token: '7' }],
      [2, 'leave', 'w1/1.0.1', { ...HELD, token: '7' }],
      [3, 'attempt', 'w2/1.0.1'],
      [4, 'enter', 'w2/1.0.1', { ...HELD, token: '6', accepted: false }],
    ]);
    expect(violations).toContain('token');
  });
});

describe('recovery time', () => {
  const section = (at: number, key: string, token: number): readonly Entry[] => {
    const about = { key, token: String(token) };
    const caller = `w1/1.0.${at}`;
    return [
      [at, 'attempt', caller, about],
      [at + 1, 'enter', caller, { ...HELD, ...about }],
      [at + 2, 'leave', caller, { ...HELD, ...about }],
      [at + 3, 'done', caller, { ...about, result: 'released' }],
    ];
  };
  const fault: readonly Entry[] = [
    ...section(0, 'a', 1),
    ...section(10, 'b', 1),
    [20, 'begin', undefined, { fault: 'none', of: 'server' }],
    [30, 'end'],
  ];

  it('ends when the last key has been entered', async () => {
    const { recoveries } = await judged([
      ...fault,
      ...section(40, 'a', 2),
      ...section(99, 'b', 2),
      ...section(200, 'a', 3),
    ]);
    expect(recoveries).toEqual([70]);
  });

  it('is unknown if another fault or the end of the round comes first', async () => {
    const next: Entry = [50, 'begin', undefined, { fault: 'none', of: 'server' }];
    expect((await judged([...fault, ...section(40, 'a', 2), next, ...section(99, 'b', 2)])).recoveries[0]).toBe(
      undefined,
    );
    expect(
      (await judged([...fault, ...section(40, 'a', 2), [50, 'quiet'], ...section(99, 'b', 2)])).recoveries,
    ).toEqual([undefined]);
  });
});
