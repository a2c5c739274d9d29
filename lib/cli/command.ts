import { LockConfigError } from '../api/errors.js';
import type { LockInfo } from '../api/lock-info.js';
import type { LockBackend } from '../api/lock-provider.js';
import { withJson } from '../core/toolkit/with-json.js';
import { normalizeKeys } from '../key/lock-key.js';
import type { Arguments, Shape } from './arguments.js';
import type { ExitCode } from './exit-code.js';
import type { Namespace } from './open-backend.js';
import type { Terminal } from './terminal.js';

/** The surroundings of a command. */
export interface CommandContext {
  readonly args: Arguments;
  readonly namespace: Namespace;
  readonly terminal: Terminal;
}

/** One of the commands, in a file of its own. */
export interface Command {
  readonly shape: Shape;
  /** Its arguments, its meaning and its own options, for `--help`. */
  readonly usage: string;
  /** @throws Misuse, before anything is opened */
  check?(args: Arguments, terminal: Terminal): void;
  run(context: CommandContext): Promise<ExitCode>;
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

/** @throws LockConfigError where the provider has no list */
export function listOf({ provider, backend }: Namespace, prefix: string): AsyncIterable<LockInfo> {
  if (backend.list) return backend.list({ prefix });
  return notOffered(provider, backend, 'cannot list its locks');
}

/** The state of a key; `null` when it is free. @throws LockKeyError; LockConfigError where the provider does not know it */
export async function inspect({ provider, backend }: Namespace, key: string): Promise<LockInfo | null> {
  const [only = key] = normalizeKeys(key);
  if (!backend.inspect || !backend.capabilities.forceRelease)
    return notOffered(provider, backend, 'cannot inspect a key');
  const info = await backend.inspect(only);
  return info && withJson(info);
}

/** Answers whether the key was locked. @throws LockConfigError where the provider cannot do it */
export async function forceRelease({ provider, backend }: Namespace, key: string): Promise<boolean> {
  const [only = key] = normalizeKeys(key);
  if (!backend.forceRelease || !backend.capabilities.forceRelease)
    return notOffered(provider, backend, 'cannot free a key');
  return backend.forceRelease(only);
}

function notOffered(provider: string, { capabilities }: LockBackend, what: string): never {
  const instead =
    capabilities.lease === 'session' && !capabilities.forceRelease
      ? ' Its locks belong to sessions of the database, which only the database can list. End the session of the holder there.'
      : ' See what each provider can do: docs/choosing-a-provider.md.';
  throw new LockConfigError(`${provider} ${what}.${instead}`);
}
