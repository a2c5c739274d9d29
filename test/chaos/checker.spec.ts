import { beforeAll, describe, expect, it } from '@jest/globals';

interface Checker {
  observe(entry: object): void;
  readonly violations: readonly { readonly rule: string }[];
}

// Plain JavaScript without types, as the programs are.
const CHECKER: string = '../../chaos/judge/checker.mjs';

describe('the rule that nobody is overtaken', () => {
  let Checker: new (subject: object) => Checker;
  beforeAll(async () => {
    ({ Checker } = (await import(CHECKER)) as { Checker: typeof Checker });
  });

  /** `w2` asks while `w1` and another caller of its own process hold the lock; then somebody of `w3` asks, and enters first. */
  function judged(fair: boolean | 'processes', { mateLeaves = 0, askedLater = 600, fault = {} }) {
    const checker = new Checker({ fair, allows: {}, lifetime: 100, recovery: 100, settle: 50 });
    const tell = (at: number, event: string, worker: string, more: object = {}) => {
      checker.observe({ at, event, op: `${worker}/1.0.1`, key: 'a', mode: 'exclusive', ...more });
    };
    tell(0, 'ask', 'mate', { op: 'w2/1.1.1' });
    tell(0, 'ask', 'w2');
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

  it('is not judged where a fault is in the way of the waiter', () => {
    expect(judged(true, { mateLeaves: 3, fault: { ...none, target: 'w2' } })).toEqual([]);
    expect(judged(true, { mateLeaves: 3, fault: { ...none, of: 'server' } })).toEqual([]);
  });
});
