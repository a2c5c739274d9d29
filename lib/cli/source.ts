import type { Values } from './arguments.js';
import { UsageError } from './exit-code.js';

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

/** Where to find the locks. */
export type Source =
  | { readonly kind: ServerKind; readonly url: string; readonly table: string | undefined }
  | { readonly kind: 'config'; readonly file: string };

/** @throws UsageError */
export function sourceOf({ url, config, table }: Values, environment: NodeJS.ProcessEnv): Source {
  if (config !== undefined) {
    if (url !== undefined) throw new UsageError('Use either --url or --config, not both.');
    if (table !== undefined) throw new UsageError('--table cannot be combined with --config. Set "table" in the file.');
    return { kind: 'config', file: config };
  }
  const source = url === undefined ? serverOf(environment['LOCK_URL'] ?? '', 'LOCK_URL') : serverOf(url, '--url');
  if (table !== undefined && source.kind !== 'postgres' && source.kind !== 'mysql')
    throw new UsageError('--table is only for SQL.');
  return { ...source, table };
}

/** Errors never show the URL, because it may contain a password. */
function serverOf(url: string, from: string) {
  if (url === '')
    throw new UsageError('No server specified. Use --url or --config, or set the LOCK_URL environment variable.');
  const scheme = /^[a-z]+:(?=\/\/)/i.exec(url)?.[0].toLowerCase() ?? '';
  if (scheme in SERVERS) return { kind: SERVERS[scheme as keyof typeof SERVERS], url };
  const schemes = Object.keys(SERVERS).map((each) => `${each}//`);
  throw new UsageError(`${from} must begin with one of ${schemes.join(', ')}.`);
}

/** Whether an address contains a password. Errs on the safe side for malformed addresses. */
export function hasPassword(address: string): boolean {
  return /:\/\/[^@]*:[^@]*@/.test(address) || /[?&]pass(word|wd)?=/i.test(address);
}
