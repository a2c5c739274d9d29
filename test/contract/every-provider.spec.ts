import { readdirSync, readFileSync } from 'node:fs';
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
    // One for each kind of its locks, or for all of them.
    const isOfFolder = new RegExp(`^${folder}(-[\\w-]+)?\\.spec\\.ts$`);
    const specs = readdirSync(import.meta.dirname).filter((file) => isOfFolder.test(file));
    const texts = specs.map((spec) => readFileSync(join(import.meta.dirname, spec), 'utf8'));
    expect(texts).toContainEqual(expect.stringContaining('describeLockProvider('));
  });
});
