import { parseArgs } from 'node:util';
import { isError } from '../api/cause.js';
import type { Command } from './command.js';
import { UsageError } from './exit-code.js';

const text = (value: string, help: string) => ({ type: 'string', value, help }) as const;
const flag = (help: string) => ({ type: 'boolean', help }) as const;

/** All options, with an example value for each string option. The parser and `--help` are derived from this table. */
export const OPTIONS = {
  prefix: text('order:', 'same as the argument'),
  yes: { ...flag('frees the key without a prompt'), short: 'y' },
  database: text('postgres', 'or mysql (also for MariaDB); required'),
  out: text(
    '"migrations/*_locks.sql"',
    `writes the statements to this file, overwriting it. A name with * stands for the one file
that matches; quote it so that the shell doesn't expand it. Creates missing folders`,
  ),
  url: text(
    'redis://user@host:6379',
    `also rediss://, postgres://, mysql:// or zookeeper://zk1:2181,zk2:2181/chroot.
Default: the environment variable LOCK_URL`,
  ),
  config: text('lock.config.mjs', 'exports a lock provider by default: for Cluster, Sentinel, TLS, Redlock, memcached'),
  namespace: text('shop', 'the namespace of the application. Default: the export "namespace" of that file, or lock'),
  table: text('app.locks', 'the table of SQL locks. Default: distributed_lock'),
  json: flag('prints JSON'),
  help: { ...flag('prints this text'), short: 'h' },
} as const;
export type OptionName = keyof typeof OPTIONS;

/** The options shared by all commands that use a server. */
export const SERVER_OPTIONS = ['url', 'config', 'namespace', 'table', 'json', 'help'] as const;

export function optionsOf({ usesServer, options = [] }: Command): readonly OptionName[] {
  return [...options, ...(usesServer ? SERVER_OPTIONS : (['help'] as const))];
}

export type Values = {
  readonly [Name in OptionName]?: ((typeof OPTIONS)[Name]['type'] extends 'boolean' ? boolean : string) | undefined;
};

export interface Arguments extends Values {
  /** The key, or the key prefix. */
  readonly subject?: string | undefined;
}

/** Parses a command's arguments. @throws UsageError */
export function readArguments(args: readonly string[], command: Command): Arguments {
  const { values, positionals } = parse(args, optionsOf(command));
  return values.help ? values : { ...values, subject: subjectOf(command, values.prefix, positionals) };
}

function parse(args: readonly string[], names: readonly OptionName[]): { values: Values; positionals: string[] } {
  const options = Object.fromEntries(names.map((name) => [name, OPTIONS[name]]));
  try {
    return parseArgs({ args: [...args], options, allowPositionals: true });
  } catch (error) {
    // Safe to show: Node's message contains the option's name but not other options' values.
    if (isError(error) && 'code' in error && String(error.code).startsWith('ERR_PARSE_ARGS'))
      throw new UsageError(error.message.replace(/[.\n][^]*/, '') + '.');
    throw error;
  }
}

function subjectOf({ subject }: Command, prefix: string | undefined, positionals: string[]): string | undefined {
  const [first, ...others] = prefix === undefined ? positionals : [prefix, ...positionals];
  if (subject === 'key' && first === undefined) throw new UsageError('The key is missing.');
  if (first !== undefined && subject === undefined) throw new UsageError('This command takes options only.');
  if (others.length > 0)
    throw new UsageError(`Too many arguments: pass one ${subject ?? 'argument'}, in quotes if it contains spaces.`);
  return first;
}
