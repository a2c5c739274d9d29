import { parseArgs } from 'node:util';
import { isError } from '../api/cause.js';
import type { Command } from './command.js';
import { Misuse } from './exit-code.js';

const text = (value: string, help: string) => ({ type: 'string', value, help }) as const;
const flag = (help: string) => ({ type: 'boolean', help }) as const;

/** The options of all commands, each text with an example. The parser and `--help` follow from this table. */
export const OPTIONS = {
  prefix: text('order:', 'the same as the argument'),
  yes: { ...flag('frees the key without a prompt'), short: 'y' },
  database: text('postgres', 'or mysql (also for MariaDB); required'),
  out: text(
    '"migrations/*_locks.sql"',
    `writes the statements to this file and replaces what it contains. A name with * means the one file
that matches; in quotes, it means the same in every shell. Creates missing folders`,
  ),
  url: text(
    'redis://user@host:6379',
    `also rediss://, postgres://, mysql:// or zookeeper://zk1:2181,zk2:2181/chroot.
Default: the environment variable LOCK_URL`,
  ),
  config: text(
    'lock.config.mjs',
    'its default export is a lock provider: for Cluster, Sentinel, TLS, Redlock or memcached',
  ),
  namespace: text('shop', 'the namespace of the application. Default: lock, or the export "namespace" of the file'),
  table: text('app.locks', 'the table of SQL locks. Default: distributed_lock'),
  json: flag('prints JSON'),
  help: { ...flag('prints this text'), short: 'h' },
} as const;
export type OptionName = keyof typeof OPTIONS;

/** The options of each command that uses a server. */
export const SERVER_OPTIONS = ['url', 'config', 'namespace', 'table', 'json', 'help'] as const;

export function optionsOf({ usesServer, options = [] }: Command): readonly OptionName[] {
  return [...options, ...(usesServer ? SERVER_OPTIONS : (['help'] as const))];
}

export type Values = {
  readonly [Name in OptionName]?: ((typeof OPTIONS)[Name]['type'] extends 'boolean' ? boolean : string) | undefined;
};

export interface Arguments extends Values {
  /** The key, or the prefix of keys. */
  readonly subject?: string | undefined;
}

/**
 * Reads the arguments that follow the name of a command.
 *
 * @throws Misuse
 */
export function readArguments(args: readonly string[], command: Command): Arguments {
  const { values, positionals } = parse(args, optionsOf(command));
  return values.help ? values : { ...values, subject: subjectOf(command, values.prefix, positionals) };
}

function parse(args: readonly string[], names: readonly OptionName[]): { values: Values; positionals: string[] } {
  const options = Object.fromEntries(names.map((name) => [name, OPTIONS[name]]));
  try {
    return parseArgs({ args: [...args], options, allowPositionals: true });
  } catch (error) {
    // Node's message names the option, and never the value of another one.
    if (isError(error) && 'code' in error && String(error.code).startsWith('ERR_PARSE_ARGS'))
      throw new Misuse(error.message.replace(/[.\n][^]*/, '') + '.');
    throw error;
  }
}

function subjectOf({ subject }: Command, prefix: string | undefined, positionals: string[]): string | undefined {
  const [first, ...others] = prefix === undefined ? positionals : [prefix, ...positionals];
  if (subject === 'key' && first === undefined) throw new Misuse('The key is missing.');
  if (first !== undefined && subject === undefined) throw new Misuse('This command takes options only.');
  if (others.length > 0)
    throw new Misuse(`There must be one ${subject ?? 'argument'}: quote it if it contains blanks.`);
  return first;
}
