import { readFileSync } from 'node:fs';
import { DEFAULTS } from '../../lib/core/plan/lock-settings.js';

it('the page of options names each default of a class, and of a module', () => {
  const page = readFileSync(new URL('../../docs/reference/options.md', import.meta.url), 'utf8');
  const ofClass = /## `@LockDefaults[^#]*/.exec(page)?.[0] ?? '';
  const ofModule = /\n`defaults` takes[^#]*/.exec(page)?.[0] ?? '';
  for (const name of Object.keys(DEFAULTS)) {
    expect(ofClass).toContain(`\`${name}\``);
    expect(ofModule).toContain(`\`${name}\``);
  }
});
