import { expect, it } from '@jest/globals';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

interface Mutant {
  readonly id: string;
  readonly seed?: number;
}

// Plain JavaScript without types, as the programs are.
const LISTS: readonly string[] = ['../mutants/index.mjs', '../mutants/simulated.mjs'];
const [{ MUTANTS }, { SIMULATED }] = (await Promise.all(LISTS.map((list) => import(list)))) as [
  { MUTANTS: readonly Mutant[] },
  { SIMULATED: readonly Mutant[] },
];
const found = SIMULATED.filter(({ seed }) => seed !== undefined);
const missed = SIMULATED.filter(({ seed }) => seed === undefined);
const textOf = (page: string) => readFileSync(join(import.meta.dirname, '../../docs', page), 'utf8');

it('the pages give the numbers of planted faults that the simulation finds', () => {
  expect(textOf('trust.md')).toContain(`finds ${found.length} of ${SIMULATED.length} faults`);
  expect(textOf('reliability.md')).toContain(`plants ${MUTANTS.length} faults`);
  expect(textOf('reliability.md')).toContain(`finds ${found.length} of the ${SIMULATED.length} `);
});

it('the page on reliability names each that it does not find', () => {
  const page = textOf('reliability.md');
  const [, list = ''] = /can't find these \w+,[^:]*:\n\n((?:- .*\n)+)/.exec(page) ?? [];
  const named = Array.from(list.matchAll(/`([a-z-]+)`(?=:| and)/g), ([, id]) => id);
  expect(named.sort()).toEqual(missed.map(({ id }) => id).sort());
});
