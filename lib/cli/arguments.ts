import { parseArgs } from 'node:util';
import { isError } from '../api/cause.js';
import { Misuse } from './exit-code.js';

/** Schemes of addresses, and the servers they stand for. */
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

/** The arguments of a command. */
export interface Arguments {
  readonly source: Source;
  readonly namespace: string | undefined;
  /** The key, or the beginning of keys. */
  readonly subject: string | undefined;
  readonly json: boolean;
  readonly yes: boolean;
  /** An address with a password was an argument, which other users of the machine see. */
  readonly showsPassword: boolean;
}

/** The arguments that a command takes besides its server. */
export interface Shape {
  /** The meaning of its only argument. */
  readonly subject?: 'key' | 'prefix';
  readonly asks?: boolean;
}

const TEXT = { type: 'string' } as const;
const SWITCH = { type: 'boolean' } as const;
const OPTIONS = {
  url: TEXT,
  config: TEXT,
  table: TEXT,
  namespace: TEXT,
  prefix: TEXT,
  json: SWITCH,
  yes: { ...SWITCH, short: 'y' },
  help: { ...SWITCH, short: 'h' },
} as const;

/**
 * Reads the arguments behind the name of a command; `help` if that is what is asked for.
 *
 * @throws Misuse
 */
export function readArguments(
  args: readonly string[],
  shape: Shape,
  environment: NodeJS.ProcessEnv,
): Arguments | 'help' {
  const { values, positionals } = parse(args, shape);
  if (values.help) return 'help';
  return {
    source: sourceOf(values, environment),
    namespace: values.namespace,
    subject: subjectOf(shape, values.prefix, positionals),
    json: values.json ?? false,
    yes: values.yes ?? false,
    showsPassword: [values.url ?? '', ...positionals].some(hasPassword),
  };
}

type Values = ReturnType<typeof parse>['values'];

function parse(args: readonly string[], { subject, asks = false }: Shape) {
  try {
    const parsed = parseArgs({ args: [...args], options: OPTIONS, allowPositionals: true });
    if (parsed.values.prefix !== undefined && subject !== 'prefix') throw new Misuse('--prefix is for list.');
    if (parsed.values.yes !== undefined && !asks) throw new Misuse('--yes is for free.');
    return parsed;
  } catch (error) {
    // Its own words name the option, and never the value of another one.
    if (isError(error) && 'code' in error && String(error.code).startsWith('ERR_PARSE_ARGS'))
      throw new Misuse(error.message.replace(/[.\n][^]*/, '') + '.');
    throw error;
  }
}

function subjectOf({ subject }: Shape, prefix: string | undefined, positionals: readonly string[]): string | undefined {
  const [first, ...others] = prefix === undefined ? positionals : [prefix, ...positionals];
  if (subject === 'key' && first === undefined) throw new Misuse('The key is missing.');
  if (first !== undefined && subject === undefined) throw new Misuse('This command takes options only.');
  if (others.length > 0)
    throw new Misuse(`There must be one ${subject ?? 'argument'}: quote it if it contains blanks.`);
  return first;
}

function sourceOf({ url, config, table }: Values, environment: NodeJS.ProcessEnv): Source {
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
function hasPassword(address: string): boolean {
  return /:\/\/[^@]*:[^@]*@/.test(address) || /[?&]pass(word|wd)?=/i.test(address);
}
