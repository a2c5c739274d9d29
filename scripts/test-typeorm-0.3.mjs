import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { root } from './ensure-installed.mjs';

// The tests of the locks over TypeORM, with version 0.3 in place of 1.
const folder = join(root, 'test/typeorm/typeorm-0.3');
run('npm', ['install', '--no-audit', '--no-fund', '--no-package-lock', '--legacy-peer-deps'], folder);
run(process.execPath, ['scripts/test.mjs', 'test/typeorm', 'test/contract/typeorm'], root, {
  ...process.env,
  TYPEORM: join(folder, 'node_modules/typeorm/index.mjs'),
});

function run(command, args, cwd, env = process.env) {
  const { status } = spawnSync(command, args, { stdio: 'inherit', cwd, env });
  if (status !== 0) process.exit(status ?? 1);
}
