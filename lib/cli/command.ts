import { LockConfigError } from '../api/errors.js';
import type { LockInfo } from '../api/lock-info.js';
import { printable } from '../api/printable.js';
import { withJson } from '../core/toolkit/with-json.js';
import { normalizeKeys } from '../key/lock-key.js';
import type { Arguments, OptionName } from './arguments.js';
import type { ExitCode } from './exit-code.js';
import type { Namespace } from './open-backend.js';
import type { Terminal } from './terminal.js';

/** A running command's context. */
export interface CommandContext {
  readonly args: Arguments;
  readonly terminal: Terminal;
  /**
   * Opens the namespace given by the arguments, without connecting. It is closed after the command. @throws UsageError
   */
  readonly open: () => Promise<Namespace>;
}

/** A command. Its arguments, `--help`, and the reference page are derived from this. */
export interface Command {
  /** Whether the command takes the options for a server. */
  readonly usesServer: boolean;
  /** What the positional argument means. A prefix is optional. */
  readonly subject?: 'key' | 'prefix';
  readonly options?: readonly OptionName[];
  /** One sentence without a final period. */
  readonly summary: string;
  readonly details?: string;
  readonly run: (context: CommandContext) => Promise<ExitCode>;
}

export async function connect({ open }: CommandContext): Promise<Namespace> {
  const namespace = await open();
  await namespace.backend.connect();
  return namespace;
}

/** A hint to show if nothing was found and the user didn't choose a namespace. */
export function namespaceHint({ namespace }: Arguments): string {
  return namespace === undefined ? ' If the application uses another namespace, set --namespace.' : '';
}

/** Says that the key is free. */
export function freeText(args: Arguments, { name }: Namespace): string {
  return `"${printable(args.subject ?? '')}" is free in the namespace "${printable(name)}".${namespaceHint(args)}`;
}

/** The maximum number of namespaces listed in a message. */
const MOST_NAMED = 10;

/** Like {@link namespaceHint}, but lists the namespaces that contain locks, if the provider can find them. */
export async function otherNamespacesHint(args: Arguments, { backend, name: own }: Namespace): Promise<string> {
  const found = (await backend.namespaces?.())?.filter((name) => name !== own) ?? [];
  if (found.length === 0) return namespaceHint(args);
  const named = found
    .toSorted()
    .slice(0, MOST_NAMED)
    .map((name) => `"${name}"`)
    .join(', ');
  const more = found.length > MOST_NAMED ? ` and ${found.length - MOST_NAMED} more` : '';
  return ` Locks are held in ${found.length === 1 ? 'the namespace' : 'the namespaces'} ${named}${more}. Choose one with --namespace.`;
}

/**
 * A key's state; `null` if it is free. @throws LockKeyError
 * @throws LockConfigError if the provider can't inspect keys
 */
export async function inspect(namespace: Namespace, key: string): Promise<LockInfo | null> {
  const { backend } = namespace;
  const [only = key] = normalizeKeys(key);
  if (!backend.inspect || !backend.capabilities.forceRelease) return notOffered(namespace, 'cannot inspect a key');
  const info = await backend.inspect(only);
  return info && withJson(info);
}

/** Returns whether the key was locked. @throws LockConfigError if the provider can't free keys */
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
      ? " Its locks belong to database sessions, which only the database can list. End the holder's session there."
      : ' See what each provider supports: docs/choosing-a-provider.md.';
  throw new LockConfigError(`${provider} ${what}.${instead}`);
}
