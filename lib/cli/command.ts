import { LockConfigError } from '../api/errors.js';
import type { LockInfo } from '../api/lock-info.js';
import { withJson } from '../core/toolkit/with-json.js';
import { normalizeKeys } from '../key/lock-key.js';
import type { Arguments, OptionName } from './arguments.js';
import type { ExitCode } from './exit-code.js';
import type { Namespace } from './open-backend.js';
import type { Terminal } from './terminal.js';

/** What a command works with. */
export interface CommandContext {
  readonly args: Arguments;
  readonly terminal: Terminal;
  /** Opens the locks that the arguments name, without a connection. They are closed after the command. @throws Misuse */
  readonly open: () => Promise<Namespace>;
}

/** A row of the table of commands: its arguments, `--help` and the page of the documentation follow from it. */
export interface Command {
  /** Whether it takes the options that name a server. */
  readonly usesServer: boolean;
  /** The meaning of its only argument. A prefix may be absent. */
  readonly subject?: 'key' | 'prefix';
  readonly options?: readonly OptionName[];
  /** One sentence, without its period. */
  readonly summary: string;
  readonly details?: string;
  readonly run: (context: CommandContext) => Promise<ExitCode>;
}

export async function connect({ open }: CommandContext): Promise<Namespace> {
  const namespace = await open();
  await namespace.backend.connect();
  return namespace;
}

/** The first thing to try where a namespace has no such key, and none was named. */
export function namespaceHint({ namespace }: Arguments): string {
  return namespace === undefined ? ' If the application has another namespace, name it with --namespace.' : '';
}

/** How many namespaces a message names. */
const MOST_NAMED = 10;

/** As {@link namespaceHint} for a namespace without locks: names those that have some, where the provider can find them. */
export async function otherNamespacesHint(args: Arguments, { backend, name: own }: Namespace): Promise<string> {
  const found = (await backend.namespaces?.())?.filter((name) => name !== own) ?? [];
  if (found.length === 0) return namespaceHint(args);
  const named = found
    .toSorted()
    .slice(0, MOST_NAMED)
    .map((name) => `"${name}"`)
    .join(', ');
  const more = found.length > MOST_NAMED ? ` and ${found.length - MOST_NAMED} more` : '';
  return ` Locks are held in ${found.length === 1 ? 'the namespace' : 'the namespaces'} ${named}${more}: name one with --namespace.`;
}

/** The state of a key; `null` when it is free. @throws LockKeyError; LockConfigError where the provider does not know it */
export async function inspect(namespace: Namespace, key: string): Promise<LockInfo | null> {
  const { backend } = namespace;
  const [only = key] = normalizeKeys(key);
  if (!backend.inspect || !backend.capabilities.forceRelease) return notOffered(namespace, 'cannot inspect a key');
  const info = await backend.inspect(only);
  return info && withJson(info);
}

/** Answers whether the key was locked. @throws LockConfigError where the provider cannot do it */
export async function forceRelease(namespace: Namespace, key: string): Promise<boolean> {
  const { backend } = namespace;
  const [only = key] = normalizeKeys(key);
  if (!backend.forceRelease || !backend.capabilities.forceRelease) return notOffered(namespace, 'cannot free a key');
  return backend.forceRelease(only);
}

/** @throws LockConfigError */
export function notOffered({ provider, backend: { capabilities } }: Namespace, what: string): never {
  const instead =
    capabilities.lease === 'session' && !capabilities.forceRelease
      ? ' Its locks belong to sessions of the database, which only the database can list. End the session of the holder there.'
      : ' See what each provider can do: docs/choosing-a-provider.md.';
  throw new LockConfigError(`${provider} ${what}.${instead}`);
}
