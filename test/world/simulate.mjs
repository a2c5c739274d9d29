import { spawnSync } from 'node:child_process';
import { bundleWorld } from './bundle.mjs';

const bundle = await bundleWorld('world');
const { status } = spawnSync(process.execPath, [bundle, ...process.argv.slice(2)], { stdio: 'inherit' });
process.exit(status ?? 1);
