// Which code a saved result depends on, and a hash of it, which shows whether the result is outdated.
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { root } from './ensure-installed.mjs';

const LOCKS = ['lib/api', 'lib/core', 'lib/decoration', 'lib/key'];
const SQL = ['sql', 'typeorm'];
/** The folders of `lib/providers`, by a word in the name of a subject, a group of benchmarks, or a server. */
const PROVIDERS = [
  [/^naive|-package$/, []],
  [/redlock/, ['redis', 'redlock']],
  [/failover|combined/, ['combined', 'failover', 'redis', ...SQL]],
  [/version|typeorm|mysql|mariadb|postgres/, SQL],
  [/zookeeper/, ['zookeeper']],
  [/memcached/, ['memcached']],
  [/^memory/, ['memory']],
  [/(?:)/, ['memory', 'redis']],
];
const CHAOS = ['chaos/faults', 'chaos/fleet', 'chaos/judge'];

/** The folders that a subject of `npm run chaos` tests, and the folders that test it. */
export function codeOfSubject(name) {
  return [...CHAOS, ...codeOf(name)];
}

/** The folders that a group of benchmarks or a server's tests measure. */
export function codeOf(name) {
  const [, providers] = PROVIDERS.find(([word]) => word.test(name));
  if (providers.length === 0) return [];
  const recipes = /leader|jobs/.test(name) ? ['lib/recipes'] : [];
  const nest = /decorator|node/.test(name) ? ['lib/nest', 'lib/recipes'] : [];
  return [...LOCKS, 'lib/providers/shared', ...providers.map((each) => `lib/providers/${each}`), ...recipes, ...nest];
}

/**
 * A hash of the code in these folders. Comment lines and blank lines don't count, because they don't make a result
 * outdated.
 */
export function hashOf(folders, base = root) {
  const hash = createHash('sha256');
  for (const file of folders.flatMap((folder) => filesIn(base, folder)))
    hash.update(`${file}\n${codeIn(join(base, file))}\n`);
  return hash.digest('hex').slice(0, 16);
}

function filesIn(base, folder) {
  const files = readdirSync(join(base, folder), { recursive: true });
  return files
    .map((file) => `${folder}/${file}`)
    .filter((file) => statSync(join(base, file)).isFile())
    .sort();
}

const codes = new Map();

function codeIn(file) {
  let code = codes.get(file);
  if (code === undefined) {
    const lines = readFileSync(file, 'utf8').split('\n');
    const comment = file.endsWith('.lua') ? /^\s*--/ : /^\s*(?:\/\/|\/\*|\*(?: |\/|$))/;
    code = lines.filter((line) => line.trim() !== '' && !comment.test(line)).join('\n');
    codes.set(file, code);
  }
  return code;
}
