import fc from 'fast-check';
import { findCycle, isLater, type PublishedWait, type WaitLink } from '../../lib/core/insight/cycle-search.js';
import { readWaitRecord, WaitRecordWriter } from '../../lib/core/insight/wait-record.js';

type Mode = PublishedWait['mode'];

interface Owner {
  readonly id: string;
  readonly since: number;
  readonly holds: readonly (readonly [key: string, mode: Mode])[];
  readonly wants: string;
  readonly mode: Mode;
}

const owner = (id: string, holds: string, wants: string, rest: Partial<Owner> = {}): Owner => ({
  ...{ id, since: 0, wants, mode: 'exclusive' },
  holds: holds.split('').map((key) => [key, 'exclusive'] as const),
  ...rest,
});

function waitOf({ id, since, wants: key, mode }: Owner): PublishedWait {
  return { id, key, mode, since, instance: 'shop', method: null };
}

/** Simulates reading the holders of every key. */
function linksOf(owners: readonly Owner[]): (key: string) => readonly WaitLink[] {
  return (key) =>
    owners.flatMap((each) =>
      each.holds
        .filter(([held]) => held === key)
        .map(([, mode]) => ({ grant: `${each.id} ${key}`, mode, wait: waitOf(each), beat: 0 })),
    );
}

function cycleOf(id: string, owners: readonly Owner[]): string | undefined {
  const start = owners.find((each) => each.id === id);
  const cycle = start && findCycle(waitOf(start), linksOf(owners));
  return cycle?.map(({ wait }) => wait.id).join(' ');
}

describe('the search for a cycle', () => {
  it('finds a cycle only from the latest wait, and starts the result with it', () => {
    const owners = [owner('1', 'a', 'b'), owner('2', 'b', 'c'), owner('3', 'c', 'a')];
    expect(owners.map(({ id }) => cycleOf(id, owners))).toEqual([undefined, undefined, '1 2 3']);
  });

  it('orders waits by server time, then by id', () => {
    const owners = [owner('1', 'a', 'b', { since: 7 }), owner('2', 'b', 'a', { since: 5 })];
    expect(owners.map(({ id }) => cycleOf(id, owners))).toEqual(['2 1', undefined]);
  });

  it('reports nothing to a caller that waits for a cycle without being part of it', () => {
    const owners = [owner('1', 'a', 'b'), owner('2', 'b', 'a'), owner('9', 'z', 'a')];
    expect(cycleOf('9', owners)).toBeUndefined();
    expect(cycleOf('2', owners)).toBe('1 2');
  });

  it('backtracks from a dead end and from a branch that was already visited', () => {
    const shared = (keys: string) => ({ holds: keys.split('').map((key) => [key, 'shared'] as const) });
    const owners = [
      owner('9', 'a', 'r'),
      owner('1', '', 'dead end', shared('r')),
      owner('2', '', 'x', shared('r')),
      owner('3', 'x', 'y'),
      owner('4', 'y', 'x'),
      owner('5', '', 'a', shared('r')),
    ];
    expect(cycleOf('9', owners)).toBe('5 9');
  });

  it('knows that readers do not block readers, and limited holders block no caller', () => {
    const one = owner('1', 'a', 'r', { mode: 'shared' });
    const other = (mode: Mode) => owner('2', '', 'a', { holds: [['r', mode]] });
    expect(cycleOf('2', [one, other('shared')])).toBeUndefined();
    expect(cycleOf('2', [one, other('exclusive')])).toBe('1 2');
    expect(cycleOf('2', [{ ...one, mode: 'exclusive' }, other('shared')])).toBe('1 2');
    expect(cycleOf('2', [{ ...one, mode: 'exclusive' }, other('limited')])).toBeUndefined();
  });

  it('finds a cycle of any length', () => {
    const ring = Array.from({ length: 1_000 }, (_, index) => ({
      ...owner(String(index + 1_000), '', `k${(index + 1) % 1_000}`),
      holds: [[`k${index}`, 'exclusive'] as const],
    }));
    expect(cycleOf('1999', ring)?.split(' ')).toHaveLength(1_000);
  });

  it('finds a cycle exactly if an exhaustive search does', () => {
    const key = fc.constantFrom('a', 'b', 'c', 'd');
    const mode = fc.constantFrom<Mode>('exclusive', 'shared', 'limited');
    const owners = fc
      .array(
        fc.record({ holds: fc.array(fc.tuple(key, mode), { maxLength: 3 }), wants: key, mode, since: fc.nat(2) }),
        {
          maxLength: 7,
        },
      )
      .map((all) => all.map((each, index): Owner => ({ ...each, id: String(index) })));
    fc.assert(
      fc.property(owners, (all) => {
        for (const start of all) {
          expect([start.id, cycleOf(start.id, all) !== undefined]).toEqual([start.id, isVictim(start, all)]);
        }
      }),
      { numRuns: 2_000 },
    );
  });
});

/** Tries every path. */
function isVictim(start: Owner, all: readonly Owner[]): boolean {
  const waitsFor = (one: Owner, other: Owner) =>
    other.holds.some(([key, mode]) => {
      if (key !== one.wants || mode === 'limited' || one.mode === 'limited') return false;
      return mode === 'exclusive' || one.mode === 'exclusive';
    });
  const leadsBack = (from: Owner, path: readonly Owner[]): boolean =>
    all.some((next) => {
      if (!waitsFor(from, next) || isLater(waitOf(next), waitOf(start))) return false;
      return next === start || (!path.includes(next) && leadsBack(next, [...path, next]));
    });
  return leadsBack(start, [start]);
}

describe('the wait record of a process', () => {
  const process = 'aaaaaaaaaaaa';
  const grant = (number: number) => process + String(number).padStart(20, '0');
  const wait = (number: number, key: string, rest: Partial<PublishedWait> = {}): PublishedWait => ({
    ...{ id: `${process}.${number}`, key, mode: 'exclusive', since: 1_000 + number, instance: 'shop', method: null },
    ...rest,
  });

  function written(...waits: (readonly [PublishedWait, readonly string[]])[]): string {
    const writer = new WaitRecordWriter();
    for (const [each, grants] of waits) expect(writer.add(each, grants)).toBe(true);
    return writer.text(7, 'shop')!;
  }

  it("reads back what was written, by the owners' grants", () => {
    const own = [wait(1, 'b'), wait(2, 'c', { mode: 'shared', method: 'A.b' }), wait(3, 'A.b')] as const;
    const record = readWaitRecord(
      process,
      written([own[0], [grant(1), grant(2)]], [own[1], [grant(2)]], [own[2], [grant(1), grant(2)]]),
    )!;
    expect(record.beat).toBe(7);
    const waitsOf = (number: number) => record.linksOf(grant(number), 'exclusive').map((link) => link.wait);
    expect(waitsOf(1)).toEqual([own[0], own[2]]);
    expect(waitsOf(2)).toEqual(own);
    expect(waitsOf(3)).toEqual([]);
    // Belongs to another process, but ends with the same characters.
    expect(record.linksOf(`b${grant(1).slice(1)}`, 'exclusive')).toEqual([]);
    expect(new WaitRecordWriter().text(7, 'shop')).toBeNull();
  });

  it('writes each set of grants, key and method only once, and stays within 32,000 characters', () => {
    const grants = Array.from({ length: 100 }, (_, number) => grant(number));
    const writer = new WaitRecordWriter();
    let count = 0;
    while (writer.add(wait(count, `key:${count % 50}`, { method: 'Shop.sell' }), grants)) count += 1;
    expect(count).toBeGreaterThan(1_500);
    const text = writer.text(1, 'shop')!;
    expect(text.length).toBeLessThan(32_200);
    expect(readWaitRecord(process, text)!.linksOf(grant(99), 'exclusive')).toHaveLength(count);
  });

  const record = (change: Record<number, unknown>) =>
    JSON.stringify(Object.assign([1, 7, 1_000, 'shop', ['key'], [grant(1).slice(-20)], '1,0,0,0,0,-1'], change));

  it('accepts a record in the format of this test', () => {
    expect(readWaitRecord(process, record({}))!.linksOf(grant(1), 'exclusive')).toHaveLength(1);
  });

  it.each([
    '',
    'x',
    '{}',
    'null',
    '[]',
    record({ 0: 2 }),
    record({ 1: '7' }),
    record({ 2: -1 }),
    record({ 3: 'i\u001bd' }),
    record({ 3: 'i'.repeat(101) }),
    record({ 4: [{}] }),
    record({ 4: [''] }),
    record({ 4: ['k'.repeat(4_097)] }),
    record({ 4: ['key', 'Shop.\u001bsell'], 6: '1,0,0,0,0,1' }),
    record({ 5: [3] }),
    record({ 6: '' }),
    record({ 6: '1,0,0,0,0' }),
    record({ 6: '1,1,0,0,0,-1' }),
    record({ 6: '1,0,1,0,0,-1' }),
    record({ 6: '1,0,0,0,x,-1' }),
    record({ 6: '1,0,0,0,0,5' }),
  ])('ignores a record that is malformed: %s', (text) => {
    expect(readWaitRecord(process, text)).toBeUndefined();
  });
});
