import { join } from 'node:path';
import { root, run } from './ensure-installed.mjs';

// Runs the Nest tests with version 11 of its packages instead of 12.
const folder = join(root, 'test/nest/nest-11');
run('npm', ['install', '--no-audit', '--no-fund', '--no-package-lock', '--legacy-peer-deps', '--ignore-scripts'], {
  cwd: folder,
});
run(
  process.execPath,
  ['scripts/test.mjs', 'test/nest', 'test/testing', 'test/integrations', 'test/redis/schedules', 'test/redis/bullmq'],
  {
    env: { ...process.env, NESTJS: join(folder, 'node_modules/@nestjs') },
  },
);
