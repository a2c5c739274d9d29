import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { root } from './ensure-installed.mjs';

/**
 * The package's entry points, from `exports` in package.json: `redis` is `nestjs-distributed-lock/redis`, and `index`
 * is `nestjs-distributed-lock`.
 */
export function packageEntries() {
  const { exports } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  return Object.entries(exports).flatMap(([path, conditions]) => {
    const types = typesOf(conditions);
    if (types === undefined) return []; // package.json itself
    const source = types.replace('./dist/', 'lib/').replace(/\.d\.ts$/, '.ts');
    return [{ name: path === '.' ? 'index' : path.slice('./'.length), types, source }];
  });
}

function typesOf(conditions) {
  return typeof conditions === 'object' ? (conditions.types ?? typesOf(conditions.import)) : undefined;
}
