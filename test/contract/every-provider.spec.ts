import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const PROVIDERS = join(import.meta.dirname, '../../lib/providers');

function isProviderFolder(folder: string): boolean {
  return readdirSync(join(PROVIDERS, folder), { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.ts'))
    .some((file) => /\bexport class \w+[^{]*\bimplements\b[^{]*\bLockProvider\b/.test(source(folder, file)));
}

function source(folder: string, file: string): string {
  return readFileSync(join(PROVIDERS, folder, file), 'utf8');
}

const folders = readdirSync(PROVIDERS).filter(isProviderFolder);

// A backend without its contract test is how a broken one gets out.
describe('every provider is proved by the conformance kit', () => {
  it('finds the providers', () => {
    expect(folders).toContain('memory');
  });

  it.each(folders)('%s', (folder) => {
    const spec = join(import.meta.dirname, `${folder}.spec.ts`);
    expect(existsSync(spec) ? readFileSync(spec, 'utf8') : `${spec} is missing`).toContain('describeLockProvider(');
  });
});
