import { expect, it } from '@jest/globals';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

interface Mutant {
  readonly id: string;
  readonly file: string;
  readonly seed?: number;
  readonly killedBy?: string;
  readonly test?: string;
}

// Untyped, because the programs are plain JavaScript.
const LIST: string = './index.mjs';
const { MUTANTS, planted } = (await import(LIST)) as {
  MUTANTS: readonly Mutant[];
  planted: (mutant: Mutant, text: string) => string;
};
const inRepository = (path: string) => join(import.meta.dirname, '../..', path);

// Otherwise only the nightly run would notice that the code has changed.
it.each(MUTANTS)('the fault $id applies to the current sources', (mutant) => {
  const text = readFileSync(inRepository(mutant.file), 'utf8');
  expect(planted(mutant, text)).not.toBe(text);
});

it('each fault has a unique id, and a seed or a test that finds it', () => {
  expect(new Set(MUTANTS.map(({ id }) => id)).size).toBe(MUTANTS.length);
  expect(MUTANTS.filter(({ seed, killedBy }) => seed === undefined && killedBy === undefined)).toEqual([]);
  const specs = MUTANTS.filter(({ killedBy }) => killedBy !== undefined);
  expect(specs.filter(({ killedBy = '', test }) => !test || !existsSync(inRepository(killedBy)))).toEqual([]);
});
