import { readFileSync } from 'node:fs';
import { join } from 'node:path';

interface Mutant {
  readonly id: string;
  readonly seed?: number;
  readonly killedBy?: string;
}

// Plain JavaScript without types, as the programs are.
const LIST: string = '../world/mutants.mjs';
const { MUTANTS } = (await import(LIST)) as { MUTANTS: readonly Mutant[] };
const found = MUTANTS.filter(({ seed }) => seed !== undefined);
const missed = MUTANTS.filter(({ seed }) => seed === undefined);
const textOf = (page: string) => readFileSync(join(import.meta.dirname, '../../docs', page), 'utf8');

it('the pages give the numbers of planted faults that the simulation finds', () => {
  expect(textOf('trust.md')).toContain(`finds ${found.length} of ${MUTANTS.length} faults`);
  expect(textOf('reliability.md')).toContain(`plants ${MUTANTS.length} faults`);
  expect(textOf('reliability.md')).toContain(`finds ${found.length} of them`);
});

it('the page on reliability names each that it does not find, and those without a test', () => {
  const page = textOf('reliability.md');
  const [, list = ''] = /can't find these \w+:\n\n((?:- .*\n)+)/.exec(page) ?? [];
  const named = Array.from(list.matchAll(/`([a-z-]+)`(?=:| and)/g), ([, id]) => id);
  expect(named.sort()).toEqual(missed.map(({ id }) => id).sort());
  const [, untested = ''] = /unit test instead; (.*) have none/.exec(page) ?? [];
  const ids = Array.from(untested.matchAll(/`([a-z-]+)`/g), ([, id]) => id);
  expect(ids.sort()).toEqual(missed.flatMap(({ id, killedBy }) => (killedBy === undefined ? [id] : [])).sort());
});
