import fc from 'fast-check';
import { HolderTable } from '../../lib/providers/redis/holder-table.js';
import { exploration } from '../exploration.js';

// Few ids, so that they come back; and with the same ends, so that they meet.
const id = fc.nat({ max: 400 }).map((number) =>
  (number % 40)
    .toString(16)
    .padStart(8, '0')
    .padStart(32 - (number % 7), 'f'),
);

const step = fc.oneof(
  { weight: 3, arbitrary: fc.record({ do: fc.constant('set' as const), id, value: fc.nat() }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constantFrom('delete' as const, 'get' as const, 'has' as const), id }) },
);

describe('HolderTable', () => {
  it('does what a Map does', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 600, size: 'max' }), (steps) => {
        const table = new HolderTable<number>();
        const map = new Map<string, number>();
        for (const each of steps) {
          if (each.do === 'set') {
            table.set(each.id, each.value);
            map.set(each.id, each.value);
          } else expect(table[each.do](each.id)).toBe(map[each.do](each.id));
          expect(table.size).toBe(map.size);
        }
        expect(table.values().sort()).toEqual([...map.values()].sort());
      }),
      { numRuns: exploration(8, 500) },
    );
  });

  it('grows and shrinks', () => {
    const table = new HolderTable<number>();
    const idOf = (number: number) => number.toString(16).padStart(32, '0');
    for (let number = 0; number < 10_000; number += 1) table.set(idOf(number), number);
    expect(table.values().length).toBe(10_000);
    for (let number = 0; number < 10_000; number += 1) expect(table.get(idOf(number))).toBe(number);
    for (let number = 0; number < 9_990; number += 1) expect(table.delete(idOf(number))).toBe(true);
    expect(table.values().sort()).toEqual(Array.from({ length: 10 }, (_, index) => 9_990 + index));
    table.clear();
    expect([table.size, table.get(idOf(9_999)), table.values()]).toEqual([0, undefined, []]);
    table.set(idOf(1), 1);
    expect(table.values()).toEqual([1]);
  });
});
