import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const PROGRAM = join(import.meta.dirname, '../../scripts/check-site.mjs');

let site: string;
beforeEach(() => {
  site = mkdtempSync(join(tmpdir(), 'lock-site-'));
});
afterEach(() => {
  rmSync(site, { recursive: true });
});

function problems(pages: Record<string, string>): readonly string[] {
  for (const [page, text] of Object.entries(pages)) writeFileSync(join(site, page), text);
  const { status, stderr } = spawnSync(process.execPath, [PROGRAM, site], { encoding: 'utf8' });
  const lines = stderr.split('\n').filter((line) => line !== '');
  expect(status).toBe(lines.length > 0 ? 1 : 0);
  return lines;
}

it('accepts links to pages and their anchors, and links to other hosts', () => {
  expect(
    problems({
      'index.html':
        '<a href="/keys.html#a-b">keys</a> <a href="./keys.html?x=1">keys</a> <a href="#here" id="here">here</a>',
      'keys.html': '<h2 id="a-b">A b</h2> <a class="home" href="/">home</a> <a href="https://example.com/x">other</a>',
    }),
  ).toEqual([]);
});

it('refuses links to what does not exist', () => {
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

it('refuses what is loaded from another host', () => {
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
