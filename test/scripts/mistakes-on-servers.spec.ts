import { spawnSync } from 'node:child_process';
import { join } from 'node:path';

const root = join(import.meta.dirname, '../..');

it('each mistake on a real server gets a message with place, value and remedy, as the page shows it', () => {
  const args = ['--import', './chaos/typescript.mjs', 'mistakes/run.mjs', '--check', 'servers'];
  const { status, stdout } = spawnSync(process.execPath, args, { cwd: root, encoding: 'utf8' });
  // A driver warns there of an account that lacks permissions.
  expect([status, stdout]).toEqual([0, expect.stringMatching(/^(\d+) of \1 messages/)]);
}, 240_000);
