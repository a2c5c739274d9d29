import { isReplyError } from './redis-connection.js';

/** The server keeps refusing the login or writes, so we assume it won't recover without a configuration change. */
export class DefiniteRefusal extends Error {
  override readonly name = 'DefiniteRefusal';

  constructor(override readonly cause: unknown) {
    super(cause instanceof Error ? cause.message : String(cause));
  }
}

/** Finds the server's login error, even if the library has prepended its own text. */
const REFUSED_LOGIN = /\b(?:WRONGPASS|NOAUTH|ERR AUTH|ERR invalid password)\b.*?(?=\.?$)/m;
// In script errors, Redis versions before 7 put the position first, and Redis 7 uses different wording.
const NO_PERMISSION = /(^|-)NOPERM |ACL failure in script|The user executing the script can't/;

/** The remedy for a {@link refusedLogin}. */
export const LOGIN_REMEDY =
  "Check the username and password. If the password is rotated, update it in the client's options (ioredis) or pass a credentialsProvider (redis): both are read on every new connection.";

/**
 * Whether the error comes from a master that was demoted to a replica. By now, the address may point to the new master.
 * Redis versions before 7 put the script position before the error: `@user_script: 12: -READONLY …`, `ERR Error running
 * script … -READONLY …`.
 */
export function isDemotion(error: unknown): error is Error {
  return error instanceof Error && /(^|-)(READONLY|MASTERDOWN) /.test(error.message);
}

/** Whether the user's ACL denied the command. */
export function isForbidden(error: unknown): error is Error {
  return isReplyError(error) && NO_PERMISSION.test(error.message);
}

/** Whether a server without Cluster mode was asked for its slots. */
export function isNotClustered(error: unknown): boolean {
  return [...chainOf(error)].some((each) => isReplyError(each) && each.message.includes('cluster support disabled'));
}

/** The server's message if this error is a rejected login, or was caused by one. */
export function refusedLogin(error: unknown): string | undefined {
  for (const each of chainOf(error)) {
    const [words] = REFUSED_LOGIN.exec(each.message) ?? [];
    if (words !== undefined) return words;
  }
  return undefined;
}

/** The server's refusal and its remedy, or `undefined` if the server didn't refuse anything. */
export function refusalIn(error: unknown): { readonly words: string; readonly isDefinite: boolean } | undefined {
  const chain = [...chainOf(error)];
  const isDefinite = chain.some((each) => each instanceof DefiniteRefusal);
  const login = refusedLogin(error);
  if (login !== undefined) return { words: `Redis rejects the login (${login}). ${LOGIN_REMEDY}`, isDefinite };
  const demotion = chain.find(isDemotion);
  if (demotion) {
    const words = `Redis does not accept writes, because this server is a replica (${demotion.message.trim()}). Give the provider the address of the master.`;
    return { words, isDefinite };
  }
  const forbidden = chain.find(isForbidden);
  if (!forbidden) return undefined;
  const words = `the Redis user lacks a permission (${forbidden.message.trim()}). Grant the commands, keys, and channels listed in docs/providers/redis.md.`;
  return { words, isDefinite: true };
}

/** Whether the server's refusal is final, as far as we know. */
export function isDefiniteRefusal(error: unknown): boolean {
  return refusalIn(error)?.isDefinite === true;
}

function* chainOf(error: unknown): Generator<Error> {
  for (let each = error; each instanceof Error; each = each.cause) yield each;
}
