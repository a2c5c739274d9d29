import { parseArgs } from 'node:util';
import { isError } from '../api/cause.js';
import { Misuse } from './exit-code.js';

/** The kinds of servers that an option names by its address. */
export const SERVERS = ['redis', 'postgres', 'mysql', 'zookeeper'] as const;
export type ServerKind = (typeof SERVERS)[number];

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
  redis: TEXT,
  postgres: TEXT,
  mysql: TEXT,
  zookeeper: TEXT,
  config: TEXT,
  table: TEXT,
  namespace: TEXT,
  prefix: TEXT,
  json: SWITCH,
  yes: { ...SWITCH, short: 'y' },
  help: { ...SWITCH, short: 'h' },
} as const;

const KINDS = new Map<string, ServerKind>([
  ['redis:', 'redis'],
  ['rediss:', 'redis'],
  ['postgres:', 'postgres'],
  ['postgresql:', 'postgres'],
  ['mysql:', 'mysql'],
  ['mariadb:', 'mysql'],
  ['zookeeper:', 'zookeeper'],
]);

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
  const addresses = [...SERVERS.map((kind) => values[kind]), ...positionals];
  return {
    source: sourceOf(values, environment),
    namespace: values.namespace,
    subject: subjectOf(shape, values.prefix, positionals),
    json: values.json ?? false,
    yes: values.yes ?? false,
    showsPassword: addresses.some((address) => address !== undefined && hasPassword(address)),
  };
}

type Values = ReturnType<typeof parse>['values'];

function parse(args: readonly string[], { subject, asks = false }: Shape) {
  try {
    const parsed = parseArgs({ args: [...args], options: OPTIONS, allowPositionals: true });
    if (parsed.values.prefix !== undefined && subject !== 'prefix') throw new Misuse('--prefix is for list and watch.');
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

function sourceOf(values: Values, environment: NodeJS.ProcessEnv): Source {
  const { config, table } = values;
  const given = SERVERS.filter((kind) => values[kind] !== undefined);
  const [kind, other] = [...given, ...(config === undefined ? [] : ['config' as const])];
  if (other !== undefined) throw new Misuse(`--${kind} and --${other} were given: one server at a time.`);
  if (kind === 'config' && config !== undefined) {
    if (table !== undefined)
      throw new Misuse('--table is for --postgres and --mysql. The file of --config names its table.');
    return { kind, file: config };
  }
  const source =
    kind !== undefined && kind !== 'config'
      ? ofOption(kind, values[kind] ?? '')
      : ofEnvironment(environment['LOCK_URL']);
  if (table !== undefined && source.kind !== 'postgres' && source.kind !== 'mysql') {
    throw new Misuse('--table is for --postgres and --mysql.');
  }
  return { ...source, table };
}

function ofOption(kind: ServerKind, url: string) {
  const scheme = schemeOf(url);
  if (scheme === undefined || KINDS.get(scheme) === kind) return { kind, url };
  throw new Misuse(`The address of --${kind} begins with ${scheme}//, and must begin with ${schemesOf(kind)}.`);
}

function ofEnvironment(url: string | undefined) {
  if (!url) {
    throw new Misuse(
      `No server is named: use ${SERVERS.map((kind) => `--${kind}`).join(', ')} or --config, or put the address into the environment variable LOCK_URL.`,
    );
  }
  const kind = KINDS.get(schemeOf(url) ?? '');
  if (kind) return { kind, url };
  throw new Misuse(`LOCK_URL must begin with ${SERVERS.map(schemesOf).join(', ')}.`);
}

function schemeOf(url: string): string | undefined {
  return /^[a-z][a-z\d+.-]*:(?=\/\/)/i.exec(url)?.[0].toLowerCase();
}

function schemesOf(kind: ServerKind): string {
  return [...KINDS].flatMap(([scheme, each]) => (each === kind ? `${scheme}//` : [])).join(' or ');
}

/** Whether it is an address with a password, or one that cannot be read and may have one. */
function hasPassword(address: string): boolean {
  return /:\/\/[^@]*:[^@]*@/.test(address) || /[?&]pass(word|wd)?=/i.test(address);
}
