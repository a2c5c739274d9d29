import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const LIB = fileURLToPath(new URL('../../../lib/', import.meta.url));
const FROM = /(?:\bfrom|\bimport)\s*\(?\s*'([^']+)'/g;

/** The packages that a source file names, itself and through what it imports; those of types among them. */
function packagesOf(file: string, seen = new Set<string>()): string[] {
  if (seen.has(file)) return [];
  seen.add(file);
  const names = [...readFileSync(file, 'utf8').matchAll(FROM)].map(([, name = '']) => name);
  return names.flatMap((name) =>
    name.startsWith('.') ? packagesOf(join(dirname(file), name.replace(/\.js$/, '.ts')), seen) : [name],
  );
}

const isOwn = (name: string) => /^(node:|@nestjs\/(common|core)(\/|$)|rxjs$|reflect-metadata$|ms$|acorn$)/.test(name);

it('the root entry point names no optional package, whatever the transport', () => {
  const packages = packagesOf(join(LIB, 'index.ts'));
  expect(packages).toContain('@nestjs/core');
  expect([...new Set(packages)].filter((name) => !isOwn(name))).toEqual([]);
});

it('and the check would see one', () => {
  expect(packagesOf(join(LIB, 'integrations/swagger/index.ts'))).toContain('@nestjs/swagger');
});
