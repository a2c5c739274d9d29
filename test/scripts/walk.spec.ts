import { execFileSync } from 'node:child_process';
import { join } from 'node:path';

const root = join(import.meta.dirname, '../..');

describe('npm run walk', () => {
  it('counts the functions, files and returns of one lock, and lists the files in the order of the calls', () => {
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
