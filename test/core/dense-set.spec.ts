import fc from 'fast-check';
import { DenseSet, type Placed } from '../../lib/core/toolkit/dense-set.js';
import { exploration } from '../exploration.js';

class Member implements Placed {
  place = -1;
}

const step = fc.record({ do: fc.constantFrom('add' as const, 'delete' as const), which: fc.nat({ max: 19 }) });

it('does what a Set does', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 200, size: 'max' }), (steps) => {
      const members = Array.from({ length: 20 }, () => new Member());
      const [dense, set] = [new DenseSet<Member>(), new Set<Member>()];
      for (const each of steps) {
        const member = members[each.which] as Member;
        if (each.do === 'delete') expect(dense.delete(member)).toBe(set.delete(member));
        else if (!dense.has(member)) {
          dense.add(member);
          set.add(member);
        }
        expect(dense.size).toBe(set.size);
        expect(new Set(dense.values())).toEqual(set);
        for (const one of members) expect(dense.has(one)).toBe(set.has(one));
      }
    }),
    { numRuns: exploration(20, 500) },
  );
});

it('is gone over while its values leave', () => {
  const members = Array.from({ length: 5 }, () => new Member());
  const dense = new DenseSet<Member>();
  for (const member of members) dense.add(member);
  for (const member of dense.values()) expect(dense.delete(member)).toBe(true);
  expect(dense.size).toBe(0);
});
