import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const SCRIPT = join(import.meta.dirname, '../../scripts/check-release.mjs');
const READY = {
  version: '1.2.3',
  homepage: 'https://example.org/acme/locks#readme',
  repository: { type: 'git', url: 'git+https://example.org/acme/locks.git' },
  bugs: { url: 'https://example.org/acme/locks/issues' },
};

let folder: string;
beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'release-'))));
afterEach(() => {
  rmSync(folder, { recursive: true });
});

function check(
  manifest: object,
  changelog = '## 1.2.3 (2026-12-01)',
  tag = 'v1.2.3',
  security = 'https://example.org/acme/locks',
  rules = 'https://example.org/acme/locks',
) {
  writeFileSync(join(folder, 'package.json'), JSON.stringify(manifest));
  writeFileSync(join(folder, 'CHANGELOG.md'), changelog);
  writeFileSync(join(folder, 'SECURITY.md'), security);
  mkdirSync(join(folder, 'docs/monitoring'), { recursive: true });
  writeFileSync(join(folder, 'docs/monitoring/alert-rules.yml'), rules);
  const env = { ...process.env, GITHUB_REF_TYPE: 'tag', GITHUB_REF_NAME: tag };
  const { status, stderr } = spawnSync(process.execPath, [SCRIPT], { cwd: folder, env, encoding: 'utf8' });
  return { status, problems: stderr.trim() };
}

it('passes when everything is set', () => {
  expect(check(READY)).toEqual({ status: 0, problems: '' });
});

it.each<[string, object]>([
  ['homepage', { homepage: 'https://example.org/OWNER/locks' }],
  ['repository', { repository: { url: 'git+https://example.org/OWNER/locks.git' } }],
  ['bugs', { bugs: { url: 'https://example.org/OWNER/locks/issues' } }],
])('refuses a placeholder in "%s"', (key, change) => {
  const { status, problems } = check({ ...READY, ...change });
  expect(status).toBe(1);
  expect(problems).toMatch(new RegExp(`^"${key}" in package.json is a placeholder`));
});

it('refuses a missing address', () => {
  expect(check({ ...READY, bugs: undefined }).problems).toBe('package.json has no "bugs".');
});

it('refuses a version without its entry in the changelog', () => {
  expect(check(READY, '## 1.2.2 (2026-11-01)').problems).toMatch('no heading "## 1.2.3"');
  expect(check(READY, '## 1.2.3 (unreleased)').problems).toMatch('unreleased');
});

it('refuses a tag of another version', () => {
  expect(check(READY, undefined, 'v1.2.4').problems).toMatch('the tag must be v1.2.3');
});

it.each([
  ['SECURITY.md', 'https://example.org/OWNER/locks', undefined],
  ['docs/monitoring/alert-rules.yml', undefined, 'https://example.org/OWNER/locks'],
])('refuses a placeholder in %s', (file, security, rules) => {
  expect(check(READY, undefined, undefined, security, rules).problems).toBe(
    `${file} has a placeholder: replace OWNER.`,
  );
});
