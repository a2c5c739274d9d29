import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { root } from './ensure-installed.mjs';

// The tests of locks in a file of SQLite. Its driver is compiled for almost a minute, so it is no development dependency: it is
// installed into a folder of its own, and not at all when SQLITE_DRIVER names one that has it.
const given = process.env.SQLITE_DRIVER;
const folder = given ?? mkdtempSync(join(tmpdir(), 'lock-sqlite-driver-'));
if (given === undefined) {
  cpSync(join(root, 'test/typeorm/better-sqlite3/package.json'), join(folder, 'package.json'));
  const installed = run('npm', ['install', '--no-audit', '--no-fund'], { cwd: folder });
  if (installed !== 0) process.exit(installed);
}
const status = run(process.execPath, ['scripts/test.mjs', 'test/typeorm/sqlite-file.spec.ts'], {
  cwd: root,
  env: { ...process.env, SQLITE_DRIVER: folder },
});
if (given === undefined) rmSync(folder, { recursive: true, force: true });
process.exit(status);

function run(command, args, options) {
  const { status: code } = spawnSync(command, args, { stdio: 'inherit', ...options });
  return code ?? 1;
}
