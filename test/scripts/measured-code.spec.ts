import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const SCRIPTS = join(import.meta.dirname, '../../scripts');
const CODE = '/**\n * Meaning.\n */\nexport const limit = 1;\n';

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

it('the hash of measured code changes with the code, and not with its comments', () => {
  const hash = hashWith(CODE);
  expect(hash).toMatch(/^[0-9a-f]{16}$/);
  expect(hashWith('// Other words.\n\nexport const limit = 1;\n', '-- words\nreturn 1\n')).toBe(hash);
  expect(hashWith(CODE.replace('= 1', '= 2'))).not.toBe(hash);
  expect(hashWith(CODE, 'return 2\n')).not.toBe(hash);
});

it('the check of the results names each that is older than its code, and how to draw it again', () => {
  const check = join(SCRIPTS, 'check-results.mjs');
  const { stdout, status } = spawnSync(process.execPath, [check, '--grace', '100000'], { encoding: 'utf8' });
  const [total = '', stale] = /(\d+) results, (\d+) older than their code, 0 for too long\.\n$/.exec(stdout)!.slice(1);
  expect(status).toBe(0);
  expect(Number(total)).toBeGreaterThan(50);
  expect(stdout.match(/: npm run (chaos|bench|test:servers) -- /g) ?? []).toHaveLength(Number(stale));
});
