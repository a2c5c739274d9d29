import { isReplyError } from './redis-connection.js';

/** A connection that the server refuses for good, as far as is known: its login, or writes. */
export class DefiniteRefusal extends Error {
  override readonly name = 'DefiniteRefusal';

  constructor(override readonly cause: unknown) {
    super(cause instanceof Error ? cause.message : String(cause));
  }
}

/** The words with which a server refuses a login, also where a library has put its own before them. */
const REFUSED_LOGIN = /\b(?:WRONGPASS|NOAUTH|ERR AUTH|ERR invalid password)\b.*?(?=\.?$)/m;
// Redis before 7 puts the position in the script before the error; from 7 on a script has words of its own.
const NO_PERMISSION = /(^|-)NOPERM |ACL failure in script|The user executing the script can't/;

/** The remedy for a {@link refusedLogin}. */
export const LOGIN_REMEDY =
  'Check the user and the password. Where the password is rotated, set it in the options of the client (ioredis) or give a credentialsProvider (redis): both are read at each connection.';

/**
 * The answer of a master that has become a replica. Its name or address may lead to the new master by now. Redis before 7 puts the
 * position in the script before the error: `@user_script: 12: -READONLY …`, `ERR Error running script … -READONLY …`.
 */
export function isDemotion(error: unknown): error is Error {
  return error instanceof Error && /(^|-)(READONLY|MASTERDOWN) /.test(error.message);
}

/** Whether the ACL of the user refuses it. */
export function isForbidden(error: unknown): error is Error {
  return isReplyError(error) && NO_PERMISSION.test(error.message);
}

/** The server's words, if this is a login that it has refused, or was caused by one. */
export function refusedLogin(error: unknown): string | undefined {
  for (const each of chainOf(error)) {
    const [words] = REFUSED_LOGIN.exec(each.message) ?? [];
    if (words !== undefined) return words;
  }
  return undefined;
}

/** The refusal of the server, and the remedy; undefined where it refuses nothing. */
export function refusalIn(error: unknown): { readonly words: string; readonly isDefinite: boolean } | undefined {
  const chain = [...chainOf(error)];
  const isDefinite = chain.some((each) => each instanceof DefiniteRefusal);
  const login = refusedLogin(error);
  if (login !== undefined) return { words: `Redis refuses the login (${login}). ${LOGIN_REMEDY}`, isDefinite };
  const demotion = chain.find(isDemotion);
  if (demotion) {
    const words = `Redis takes no writes, because this server is a replica (${demotion.message.trim()}). Give the provider the address of the master.`;
    return { words, isDefinite };
  }
  const forbidden = chain.find(isForbidden);
  if (!forbidden) return undefined;
  const words = `Redis refuses it (${forbidden.message.trim()}) to this user. Give the user the commands, keys and channels that docs/providers/redis.md lists.`;
  return { words, isDefinite: true };
}

/** Whether the server refuses it for good, as far as is known. */
export function isDefiniteRefusal(error: unknown): boolean {
  return refusalIn(error)?.isDefinite === true;
}

function* chainOf(error: unknown): Generator<Error> {
  for (let each = error; each instanceof Error; each = each.cause) yield each;
}
