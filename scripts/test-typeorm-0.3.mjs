import { join } from 'node:path';
import { root, run } from './ensure-installed.mjs';

// Runs the tests of the TypeORM locks with version 0.3 instead of 1.
const folder = join(root, 'test/typeorm/typeorm-0.3');
run('npm', ['install', '--no-audit', '--no-fund', '--no-package-lock', '--legacy-peer-deps'], { cwd: folder });
run(process.execPath, ['scripts/test.mjs', 'test/typeorm', 'test/contract/typeorm'], {
  env: { ...process.env, TYPEORM: join(folder, 'node_modules/typeorm/index.mjs') },
});
