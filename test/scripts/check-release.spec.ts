import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const ROOT = join(import.meta.dirname, '../..');
const SCRIPT = join(ROOT, 'scripts/check-release.mjs');
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

const RULES = 'docs/monitoring/alert-rules.yml';
const FILLED_RULES = 'runbook_url: https://example.org/acme/locks/blob/main/docs/operate/runbook.md#a-lock-was-lost';

interface Release {
  readonly manifest?: object;
  readonly changelog?: string;
  readonly tag?: string;
  readonly rules?: string;
  readonly args?: readonly string[];
}

function check({
  manifest = READY,
  changelog = '## 1.2.3 (2026-12-01)',
  tag = 'v1.2.3',
  rules = FILLED_RULES,
  args = [],
}: Release = {}) {
  writeFileSync(join(folder, 'package.json'), JSON.stringify(manifest));
  writeFileSync(join(folder, 'CHANGELOG.md'), changelog);
  mkdirSync(join(folder, 'docs/monitoring'), { recursive: true });
  writeFileSync(join(folder, RULES), rules);
  const env = { ...process.env, GITHUB_REF_TYPE: 'tag', GITHUB_REF_NAME: tag };
  const { status, stderr } = spawnSync(process.execPath, [SCRIPT, ...args], { cwd: folder, env, encoding: 'utf8' });
  return { status, problems: stderr.trim() };
}

it('passes when everything is set', () => {
  expect(check()).toEqual({ status: 0, problems: '' });
});

it.each(['homepage', 'repository', 'bugs'])('refuses a manifest without "%s"', (name) => {
  const { status, problems } = check({ manifest: { ...READY, [name]: undefined } });
  expect(status).toBe(1);
  expect(problems).toMatch(`package.json has no "${name}".`);
});

it('refuses alert rules without an address of the runbook', () => {
  const { status, problems } = check({ rules: 'runbook: docs/operate/runbook.md#a-lock-was-lost' });
  expect(status).toBe(1);
  expect(problems).toMatch(`${RULES} has no address of the runbook.`);
});

it('fills in what only the owner knows', () => {
  const { version } = READY;
  const rules = 'runbook: docs/operate/runbook.md#a-lock-was-lost';
  const args = ['--repository', 'https://example.org/acme/locks/'];
  expect(check({ manifest: { version }, rules, args })).toEqual({ status: 0, problems: '' });
  expect(JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))).toEqual(READY);
  expect(readFileSync(join(folder, RULES), 'utf8')).toBe(FILLED_RULES);
});

it('until then, no file has an address', () => {
  const manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { repository?: { url: string } };
  const files = ['package.json', 'SECURITY.md', RULES].map((file) => readFileSync(join(ROOT, file), 'utf8'));
  expect(files.join('').match(/\/OWNER\//)).toBeNull();
  if (manifest.repository === undefined) expect(files.join('').match(/https:\/\/github\.com/)).toBeNull();
});

it('refuses a version without its entry in the changelog', () => {
  expect(check({ changelog: '## 1.2.2 (2026-11-01)' }).problems).toMatch('no heading "## 1.2.3"');
  expect(check({ changelog: '## 1.2.3 (unreleased)' }).problems).toMatch('unreleased');
});

it('refuses a tag of another version', () => {
  expect(check({ tag: 'v1.2.4' }).problems).toMatch('the tag must be v1.2.3');
});
