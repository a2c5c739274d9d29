import { beforeAll, describe, expect, it } from '@jest/globals';

interface Checker {
  observe(entry: object): void;
  readonly violations: readonly { readonly rule: string }[];
}

// Plain JavaScript without types, as the programs are.
const CHECKER: string = '../../chaos/judge/checker.mjs';

let Checker: new (subject: object) => Checker;
beforeAll(async () => {
  ({ Checker } = (await import(CHECKER)) as { Checker: typeof Checker });
});

describe('the rule that nobody writes behind a later holder', () => {
  /** `w1` writes when it has been followed by `w2`. */
  function judged(token: string | null, held: boolean) {
    const checker = new Checker({ fair: false, allows: {}, lifetime: 100, recovery: 100 });
    const tell = (at: number, event: string, worker: string, more: object = {}) => {
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
    for (const worker of ['w1', 'w2']) tell(0, 'ask', worker);
    tell(10, 'enter', 'w1', { held: true, remaining: 50 });
    tell(100, 'enter', 'w2', { token: token && '2', held: true, remaining: 50 });
    tell(110, 'write', 'w1', { held, remaining: held ? 20 : 0, overdue: 50 });
    return checker.violations.map(({ rule }) => rule);
  }

  it('is broken by a write that is accepted all the same', () => {
    expect(judged('1', false)).toContain('stale');
    expect(judged('1', true)).toContain('stale');
    expect(judged(null, true)).toContain('stale');
  });

  it('does not ask of a lock without tokens to hold up who knows that it holds no longer', () => {
    expect(judged(null, false)).toEqual([]);
  });
});

describe('the rule that nobody is overtaken', () => {
  /** `w2` asks while `w1` and another caller of its own process hold the lock; then somebody of `w3` asks, and enters first. */
  function judged(fair: boolean | 'processes', { mateLeaves = 0, askedLater = 600, fault = {}, wait = 1_000 }) {
    const checker = new Checker({ fair, allows: {}, lifetime: 100, recovery: 100, settle: 50 });
    const tell = (at: number, event: string, worker: string, more: object = {}) => {
      checker.observe({ at, event, op: `${worker}/1.0.1`, key: 'a', mode: 'exclusive', ...more });
    };
    tell(0, 'ask', 'mate', { op: 'w2/1.1.1' });
    tell(0, 'ask', 'w2', { wait });
    tell(1, 'asked', 'w2');
    checker.observe({ at: 2, event: 'begin', ...fault });
    tell(mateLeaves, 'failed', 'mate', { op: 'w2/1.1.1', code: 'ABORTED' });
    tell(askedLater, 'ask', 'w3');
    tell(askedLater + 1, 'enter', 'w3', { accepted: true, token: null, held: true, remaining: 50 });
    return checker.violations.map(({ rule }) => rule);
  }
  const none = { nemesis: 'none', of: 'worker', target: 'w9' };

  it.each([true, 'processes'] as const)('is broken by one that came half a second later (fair: %s)', (fair) => {
    expect(judged(fair, { mateLeaves: 3, fault: none })).toEqual(['overtaken']);
    expect(judged(fair, { mateLeaves: 3, fault: none, askedLater: 400 })).toEqual([]);
  });

  it('knows that a process has one place in the queue, where that is so', () => {
    expect(judged(true, { mateLeaves: 300, fault: none })).toEqual(['overtaken']);
    expect(judged('processes', { mateLeaves: 300, fault: none })).toEqual([]);
  });

  it('knows that readers of one process that wait together are let in together, where it has one place', () => {
    /** \`w1\` has a reader in the queue before the writer of \`w2\`, and another one that comes long after it. */
    const readers = (fair: boolean | 'processes', secondAsks: number, entering: readonly string[]) => {
      const checker = new Checker({ fair, allows: {}, lifetime: 100, recovery: 100 });
      const tell = (at: number, event: string, op: string, more: object = {}) => {
        checker.observe({ at, event, op, key: 'a', ...more });
      };
      const held = { accepted: true, token: '7', held: true, remaining: 50, mode: 'shared' };
      const begin: (readonly [number, string, string, string])[] = [
        [0, 'ask', 'w1/1.0.1', 'shared'],
        [1, 'asked', 'w1/1.0.1', 'shared'],
        [10, 'ask', 'w2/1.0.1', 'exclusive'],
        [11, 'asked', 'w2/1.0.1', 'exclusive'],
        [secondAsks, 'ask', 'w1/1.1.1', 'shared'],
      ];
      const enter = entering.map((op, index) => [800 + index, 'enter', op, 'shared'] as const);
      const entries = [...begin, ...enter].sort(([one], [other]) => one - other);
      for (const [at, event, op, mode] of entries) tell(at, event, op, event === 'enter' ? held : { mode });
      return checker.violations.map(({ rule }) => rule);
    };
    const inOrder = ['w1/1.0.1', 'w1/1.1.1'];
    expect(readers('processes', 700, inOrder)).toEqual([]);
    expect(readers('processes', 700, inOrder.toReversed())).toEqual([]);
    expect(readers(true, 700, inOrder)).toEqual(['overtaken']);
    // Who asks after the first of them was let in waits behind the writer.
    expect(readers('processes', 800.5, inOrder)).toEqual(['overtaken']);
  });

  it('knows that who asks once and goes away has no place in the queue', () => {
    expect(judged(true, { mateLeaves: 3, fault: none, wait: 0 })).toEqual([]);
  });

  it('is not judged where a fault is in the way of the waiter', () => {
    expect(judged(true, { mateLeaves: 3, fault: { ...none, target: 'w2' } })).toEqual([]);
    expect(judged(true, { mateLeaves: 3, fault: { ...none, of: 'server' } })).toEqual([]);
  });
});
