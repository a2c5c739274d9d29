import { spawnSync, execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const ROOT = join(import.meta.dirname, '../..');
const SCRIPTS = join(ROOT, 'scripts');
// Untyped, because the programs are plain JavaScript.
const MARKDOWN: string = '../../bench/markdown.mjs';
const CODE = '/**\n * Meaning.\n */\nexport const limit = 1;\n';

describe('the hash of measured code', () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'code-'));
    mkdirSync(join(folder, 'lib/core'), { recursive: true });
  });
  afterEach(() => {
    rmSync(folder, { recursive: true });
  });

  function hashWith(code: string, lua = 'return 1\n'): string {
    writeFileSync(join(folder, 'lib/core/limit.ts'), code);
    writeFileSync(join(folder, 'lib/core/limit.lua'), lua);
    const program = `import { hashOf } from '${SCRIPTS}/measured-code.mjs'; console.log(hashOf(['lib'], '${folder}'));`;
    return spawnSync(process.execPath, ['--input-type=module', '-e', program], { encoding: 'utf8' }).stdout.trim();
  }

  it('changes with the code, but not with its comments', () => {
    const hash = hashWith(CODE);
    expect(hash).toMatch(/^[0-9a-f]{16}$/);
    expect(hashWith('// Other words.\n\nexport const limit = 1;\n', '-- words\nreturn 1\n')).toBe(hash);
    expect(hashWith(CODE.replace('= 1', '= 2'))).not.toBe(hash);
    expect(hashWith(CODE, 'return 2\n')).not.toBe(hash);
  });
});

it('check-results.mjs lists each result older than its code, with the command that renews it', () => {
  const check = join(SCRIPTS, 'check-results.mjs');
  const { stdout, status } = spawnSync(process.execPath, [check, '--grace', '100000'], { encoding: 'utf8' });
  const [total = '', stale] = /(\d+) results, (\d+) older than their code, 0 for too long\.\n$/.exec(stdout)!.slice(1);
  expect(status).toBe(0);
  expect(Number(total)).toBeGreaterThan(50);
  expect(stdout.match(/: npm run (chaos|bench|test:servers) -- /g) ?? []).toHaveLength(Number(stale));
});

it.each<[results: string, program: string]>([
  ['servers', '../matrix/pages.mjs'],
  ['chaos', '../../chaos/pages.mjs'],
  ['benchmarks', '../../bench/pages.mjs'],
  ['comparisons', '../../bench/behavior/pages.mjs'],
])('the pages match the kept results: %s', async (_, program) => {
  const { partsOfPages } = (await import(program)) as { partsOfPages(): Record<string, Record<string, string>> };
  const { withPart } = (await import(MARKDOWN)) as { withPart(text: string, part: string, content: string): string };
  const pages = Object.entries(partsOfPages());
  expect(pages).not.toEqual([]);
  for (const [page, parts] of pages) {
    const text = readFileSync(page, 'utf8');
    for (const [part, content] of Object.entries(parts)) expect(withPart(text, part, content)).toBe(text);
  }
});

it('each mistake on a real server produces the documented message with its place, value, and remedy', () => {
  const args = ['--import', './chaos/typescript.mjs', 'mistakes/run.mjs', '--check', 'servers'];
  const { status, stdout } = spawnSync(process.execPath, args, { cwd: ROOT, encoding: 'utf8' });
  // A driver may warn on standard error about an account without permissions.
  expect([status, stdout]).toEqual([0, expect.stringMatching(/^(\d+) of \1 messages/)]);
}, 240_000);

const root = join(import.meta.dirname, '../..');

describe('npm run walk', () => {
  it('counts the functions, files, and returns of one lock, and lists the files in call order', () => {
    const output = execFileSync(process.execPath, ['scripts/walk.mjs', '--list', 'memory'], {
      cwd: root,
      encoding: 'utf8',
    });
    const [, functions, files, stays, returns] = /^\|memory\|(\d+)\|(\d+)\|(\d+)\|(\d+)\|\d+\|$/m.exec(output) ?? [];
    expect(Number(functions)).toBeGreaterThan(50);
    expect(Number(files)).toBeGreaterThan(10);
    expect(Number(stays)).toBeGreaterThan(Number(returns));
    const [first, ...rest] = output.split('\n').filter((line) => line.startsWith('  '));
    expect(first).toMatch(/^ {2}core\/lock-manager\.js: withLock,/);
    expect(rest.join('\n')).toContain('core/acquire/key-queue.js: add');
  }, 180_000);
});
