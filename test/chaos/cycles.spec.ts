import { type Entry, judged } from './hand-written.js';

const BUSY = { code: 'LOCK_BUSY' };

/** A caller in this process holds the first of the two keys and waits for the second. */
const waits = (at: number, worker: string, keys: string, more: object = {}): Entry => {
  const [holds, key] = [keys.slice(0, 1), keys.slice(1)];
  return [at, 'waits', undefined, { wait: `${worker}${key}`, worker, key, mode: 'exclusive', holds: [holds], ...more }];
};
const waited = (at: number, worker: string, key: string, end: object = {}): Entry => {
  return [at, 'waited', undefined, { wait: `${worker}${key}`, worker, key, ...end }];
};
const member = (instance: string, keys: string) => {
  return { instance, method: null, holds: keys.slice(0, 1), waitsFor: keys.slice(1), mode: 'exclusive' };
};
const refused = (...cycle: readonly object[]) => ({ code: 'LOCK_DEADLOCK', cycle });
const CYCLE = refused(member('w1/1', 'ab'), member('w2/1', 'ba'));

const fault = (begin: number, end: number, more: object = {}): readonly Entry[] => [
  [begin, 'begin', undefined, { fault: 'frozen', of: 'server', ...more }],
  [end, 'end'],
];

async function violations(...history: readonly Entry[]) {
  const inOrder = history.toSorted(([one], [other]) => one - other);
  return (await judged(inOrder, { cycles: true, reconnect: 2_000 })).violations;
}

describe('rule: no false deadlock', () => {
  const both = [waits(0, 'w1/1', 'ab'), waits(500, 'w2/1', 'ba')];

  it('accepts a cycle whose callers are still waiting', async () => {
    expect(await violations(...both, waited(3_500, 'w1/1', 'b', CYCLE))).toEqual([]);
  });

  it('accepts a cycle that a caller left a moment before, and reports one that it left earlier', async () => {
    const left = (at: number) => violations(...both, waited(at, 'w2/1', 'a', BUSY), waited(4_000, 'w1/1', 'b', CYCLE));
    expect(await left(3_000)).toEqual([]);
    expect(await left(2_999)).toEqual(['false-alarm']);
  });

  it('reports a cycle with a dead process', async () => {
    const gone: Entry = [2_000, 'gone', undefined, { worker: 'w2/1' }];
    expect(await violations(...both, gone, waited(4_000, 'w1/1', 'b', CYCLE))).toEqual(['false-alarm']);
  });

  it('reports callers that waited together for less time than the proof takes', async () => {
    const together = (from: number) =>
      violations(waits(0, 'w1/1', 'ab'), waits(from, 'w2/1', 'ba'), waited(4_000, 'w1/1', 'b', CYCLE));
    expect(await together(3_000)).toEqual([]);
    expect(await together(3_001)).toEqual(['false-alarm']);
  });

  it('reports callers that each waited long enough, but never all at the same time', async () => {
    const three = refused(member('w1/1', 'ab'), member('w2/1', 'bc'), member('w3/1', 'ca'));
    const history = (from: number) => [
      ...[waits(0, 'w1/1', 'ab'), waits(0, 'w2/1', 'bc'), waits(from, 'w3/1', 'ca')],
      ...[waited(3_500, 'w2/1', 'c'), waited(4_000, 'w1/1', 'b', three)],
    ];
    expect(await violations(...history(2_000))).toEqual([]);
    expect(await violations(...history(3_000))).toEqual(['false-alarm']);
  });

  it('reports a member that waits for a different key, holds a different key, or waits in a different mode', async () => {
    const by = (other: Entry) => violations(waits(0, 'w1/1', 'ab'), other, waited(4_000, 'w1/1', 'b', CYCLE));
    expect(await by(waits(0, 'w2/1', 'bc'))).toEqual(['false-alarm']);
    expect(await by(waits(0, 'w2/1', 'ca'))).toEqual(['false-alarm']);
    expect(await by(waits(0, 'w3/1', 'ba'))).toEqual(['false-alarm']);
    expect(await by(waits(0, 'w2/1', 'ba', { mode: 'shared' }))).toEqual(['false-alarm']);
  });

  it('reports a cycle that is not closed, has only one member, or lacks the caller', async () => {
    const by = (end: object) => violations(...both, waits(0, 'w3/1', 'cd'), waited(4_000, 'w1/1', 'b', end));
    expect(await by(refused(member('w1/1', 'ab'), member('w3/1', 'cd')))).toEqual(['false-alarm']);
    expect(await by(refused(member('w1/1', 'ab')))).toEqual(['false-alarm']);
    expect(await by(refused(member('w2/1', 'ba'), member('w1/1', 'ab')))).toEqual(['false-alarm']);
  });

  describe('a cycle that ended during a fault', () => {
    // The fault ends at 3,000. Records then stay for at most 3 s after the fault plus the reconnect time.
    const late = (at: number, ...faults: readonly Entry[]) =>
      violations(...both, ...faults, waited(2_500, 'w2/1', 'a'), waited(at, 'w1/1', 'b', CYCLE));

    it('is accepted if no process could publish its end', async () => {
      const limit = 2_500 + 1_000 + 3_000 + 500 + 2_000;
      expect(await late(limit, ...fault(2_500, 3_000))).toEqual([]);
      expect(await late(limit + 1, ...fault(2_500, 3_000))).toEqual(['false-alarm']);
    });

    it('is reported if the fault is over, or affects a process outside the cycle', async () => {
      const other = { of: 'worker', target: 'w3' };
      expect(await late(4_000, ...fault(2_500, 3_000, other))).toEqual(['false-alarm']);
      expect(await late(4_000, ...fault(2_500, 3_000, { ...other, target: 'w2' }))).toEqual([]);
      expect(await violations(...fault(0, 100), ...both.map(later), ...stale)).toEqual(['false-alarm']);
    });
    const later = ([at, ...rest]: Entry): Entry => [at + 1_000, ...rest];
    const stale = [waited(4_000, 'w2/1', 'a'), waited(5_500, 'w1/1', 'b', CYCLE)];

    it('is reported if its callers never waited together, whatever the fault', async () => {
      const apart = [waits(0, 'w1/1', 'ab'), waits(0, 'w2/1', 'ba'), waited(900, 'w2/1', 'a')];
      expect(await violations(...apart, ...fault(0, 3_000), waited(3_500, 'w1/1', 'b', CYCLE))).toEqual([
        'false-alarm',
      ]);
    });
  });
});

describe('rule: a lasting deadlock is found', () => {
  const history = (from: number, mode = 'exclusive') => [
    ...[waits(0, 'w1/1', 'ab', { mode }), waits(from, 'w2/1', 'ba', { mode }), waited(12_000, 'w1/1', 'b', BUSY)],
  ];

  it('reports a caller that waits in vain in a cycle that lasts 8 s', async () => {
    expect(await violations(...history(4_000))).toEqual(['unrefused']);
    expect(await violations(...history(4_001))).toEqual([]);
  });

  it('accepts a cycle that a member left, and callers that do not wait for each other', async () => {
    expect(await violations(...history(4_000), waited(11_999, 'w2/1', 'a', BUSY))).toEqual([]);
    expect(await violations(...history(4_000, 'shared'))).toEqual([]);
    expect(await violations(waits(0, 'w1/1', 'ab'), waits(0, 'w2/1', 'bc'), waited(12_000, 'w1/1', 'b', BUSY))).toEqual(
      [],
    );
  });

  it('is waived if a fault affected a process of the cycle, including an earlier fault that delayed its grants', async () => {
    expect(await violations(...history(4_000), ...fault(6_000, 6_100))).toEqual([]);
    expect(await violations(...fault(0, 1), ...history(4_000))).toEqual([]);
    expect(await violations(...history(4_000), ...fault(6_000, 6_100, { of: 'worker', target: 'w3' }))).toEqual([
      'unrefused',
    ]);
  });
});
