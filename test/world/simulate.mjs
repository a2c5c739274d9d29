import { spawnSync } from 'node:child_process';
import { rmSync } from 'node:fs';
import { bundleWorld } from './bundle.mjs';

const bundle = await bundleWorld(`world-${process.pid}`);
const args = ['--enable-source-maps', bundle, ...process.argv.slice(2)];
const { status } = spawnSync(process.execPath, args, { stdio: 'inherit' });
rmSync(bundle);
process.exit(status ?? 1);
