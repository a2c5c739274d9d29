import fc from 'fast-check';
import { findCycle, isLater, type PublishedWait, type WaitLink } from '../../lib/core/insight/cycle-search.js';

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

/** What a look at all keys has seen. */
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
  it('finds the one that the latest wait closes, from there on, and from no other wait', () => {
    const owners = [owner('1', 'a', 'b'), owner('2', 'b', 'c'), owner('3', 'c', 'a')];
    expect(owners.map(({ id }) => cycleOf(id, owners))).toEqual([undefined, undefined, '1 2 3']);
  });

  it('takes the time of the server first, and the id for equal times', () => {
    const owners = [owner('1', 'a', 'b', { since: 7 }), owner('2', 'b', 'a', { since: 5 })];
    expect(owners.map(({ id }) => cycleOf(id, owners))).toEqual(['2 1', undefined]);
  });

  it('reports nothing to a caller that waits for a cycle without being in it', () => {
    const owners = [owner('1', 'a', 'b'), owner('2', 'b', 'a'), owner('9', 'z', 'a')];
    expect(cycleOf('9', owners)).toBeUndefined();
    expect(cycleOf('2', owners)).toBe('1 2');
  });

  it('comes back from a branch that ends, and from one that was followed before', () => {
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

  it('knows that readers keep no reader out, and limited holders nobody', () => {
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

  it('finds a cycle wherever a search over all paths finds one', () => {
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
