import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const ROOT = join(import.meta.dirname, '../..');
const CHECK_RELEASE = join(ROOT, 'scripts/check-release.mjs');
const READY = {
  version: '1.2.3',
  homepage: 'https://example.org/acme/locks#readme',
  repository: { type: 'git', url: 'git+https://example.org/acme/locks.git' },
  bugs: { url: 'https://example.org/acme/locks/issues' },
};

const CHECK_SITE = join(ROOT, 'scripts/check-site.mjs');

describe('check-release.mjs', () => {
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
    const { status, stderr } = spawnSync(process.execPath, [CHECK_RELEASE, ...args], {
      cwd: folder,
      env,
      encoding: 'utf8',
    });
    return { status, problems: stderr.trim() };
  }

  it('passes if everything is set', () => {
    expect(check()).toEqual({ status: 0, problems: '' });
  });

  it.each(['homepage', 'repository', 'bugs'])('rejects a manifest without "%s"', (name) => {
    const { status, problems } = check({ manifest: { ...READY, [name]: undefined } });
    expect(status).toBe(1);
    expect(problems).toMatch(`package.json has no "${name}".`);
  });

  it('rejects alert rules without a runbook address', () => {
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

  it('no file contains an address before the release', () => {
    const manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { repository?: { url: string } };
    const files = ['package.json', 'SECURITY.md', RULES].map((file) => readFileSync(join(ROOT, file), 'utf8'));
    expect(files.join('').match(/\/OWNER\//)).toBeNull();
    if (manifest.repository === undefined) expect(files.join('').match(/https:\/\/github\.com/)).toBeNull();
  });

  it('rejects a version without its changelog entry', () => {
    expect(check({ changelog: '## 1.2.2 (2026-11-01)' }).problems).toMatch('no heading "## 1.2.3"');
    expect(check({ changelog: '## 1.2.3 (unreleased)' }).problems).toMatch('unreleased');
  });

  it('rejects a tag of another version', () => {
    expect(check({ tag: 'v1.2.4' }).problems).toMatch('the tag must be v1.2.3');
  });
});

describe('check-site.mjs', () => {
  let site: string;
  beforeEach(() => {
    site = mkdtempSync(join(tmpdir(), 'lock-site-'));
  });
  afterEach(() => {
    rmSync(site, { recursive: true });
  });

  function problems(pages: Record<string, string>): readonly string[] {
    for (const [page, text] of Object.entries(pages)) writeFileSync(join(site, page), text);
    const { status, stderr } = spawnSync(process.execPath, [CHECK_SITE, site], { encoding: 'utf8' });
    const lines = stderr.split('\n').filter((line) => line !== '');
    expect(status).toBe(lines.length > 0 ? 1 : 0);
    return lines;
  }

  it('accepts links to pages, anchors, and other hosts', () => {
    expect(
      problems({
        'index.html':
          '<a href="/keys.html#a-b">keys</a> <a href="./keys.html?x=1">keys</a> <a href="#here" id="here">here</a>',
        'keys.html':
          '<h2 id="a-b">A b</h2> <a class="home" href="/">home</a> <a href="https://example.com/x">other</a>',
      }),
    ).toEqual([]);
  });

  it('rejects links to missing targets', () => {
    expect(
      problems({
        'index.html':
          '<a href="/gone.html">gone</a> <a class="x" href="keys.html#gone">gone</a> <a href="#gone">gone</a> <img src="gone.svg">',
        'keys.html': '<h2 id="here">Here</h2>',
      }),
    ).toEqual([
      'index.html loads gone.svg, which does not exist.',
      'index.html links to /gone.html, which does not exist.',
      'index.html links to keys.html#gone, which does not exist.',
      'index.html links to #gone, which does not exist.',
    ]);
  });

  it('rejects resources from other hosts', () => {
    expect(
      problems({
        'index.html':
          '<link rel="stylesheet" href="//cdn.example/a.css"><script src="https://cdn.example/a.js"></script><img src="data:,">',
        'style.css':
          '@import "https://fonts.example/inter.css"; a { background: url(style.css) url(http://cdn.example/b.svg) }',
      }),
    ).toEqual([
      'index.html loads //cdn.example/a.css from another host.',
      'index.html loads https://cdn.example/a.js from another host.',
      'style.css loads https://fonts.example/inter.css from another host.',
      'style.css loads http://cdn.example/b.svg from another host.',
    ]);
  });
});
