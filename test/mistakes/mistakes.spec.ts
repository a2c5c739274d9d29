import { spawnSync } from 'node:child_process';
import { join } from 'node:path';

const root = join(import.meta.dirname, '../..');

// In a process of their own, because each boots applications of Nest, and the log of Nest belongs to a process.
it('each mistake that needs no server gets a message with place, value and remedy, as the page shows it, and each option has a mistake', () => {
  const args = ['--import', './chaos/typescript.mjs', 'mistakes/run.mjs', '--check', 'alone'];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { cwd: root, encoding: 'utf8' });
  expect([status, stderr, stdout]).toEqual([0, '', expect.stringMatching(/^(\d+) of \1 messages/)]);
}, 120_000);
