import type { Values } from './arguments.js';
import { Misuse } from './exit-code.js';

const SERVERS = {
  'redis:': 'redis',
  'rediss:': 'redis',
  'postgres:': 'postgres',
  'postgresql:': 'postgres',
  'mysql:': 'mysql',
  'mariadb:': 'mysql',
  'zookeeper:': 'zookeeper',
} as const;
type ServerKind = (typeof SERVERS)[keyof typeof SERVERS];

/** Where the locks are. */
export type Source =
  | { readonly kind: ServerKind; readonly url: string; readonly table: string | undefined }
  | { readonly kind: 'config'; readonly file: string };

/** @throws Misuse */
export function sourceOf({ url, config, table }: Values, environment: NodeJS.ProcessEnv): Source {
  if (config !== undefined) {
    if (url !== undefined) throw new Misuse('--url and --config were given: name one server.');
    if (table !== undefined) throw new Misuse('--table is for SQL. The file of --config names its table.');
    return { kind: 'config', file: config };
  }
  const source = url === undefined ? serverOf(environment['LOCK_URL'] ?? '', 'LOCK_URL') : serverOf(url, '--url');
  if (table !== undefined && source.kind !== 'postgres' && source.kind !== 'mysql')
    throw new Misuse('--table is for SQL.');
  return { ...source, table };
}

/** The message never shows the address, which may contain a password. */
function serverOf(url: string, from: string) {
  if (url === '')
    throw new Misuse('No server is named: use --url or --config, or set the environment variable LOCK_URL.');
  const scheme = /^[a-z]+:(?=\/\/)/i.exec(url)?.[0].toLowerCase() ?? '';
  if (scheme in SERVERS) return { kind: SERVERS[scheme as keyof typeof SERVERS], url };
  const schemes = Object.keys(SERVERS).map((each) => `${each}//`);
  throw new Misuse(`${from} must begin with one of ${schemes.join(', ')}.`);
}

/** Whether it is an address with a password, or one that cannot be read and may have one. */
export function hasPassword(address: string): boolean {
  return /:\/\/[^@]*:[^@]*@/.test(address) || /[?&]pass(word|wd)?=/i.test(address);
}
