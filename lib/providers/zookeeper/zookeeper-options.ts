import type { ConnectionOptions } from 'node:tls';
import { type ConfiguredDuration, toMilliseconds } from '../../api/duration.js';
import { LockConfigError } from '../../api/errors.js';
import { shown } from '../../api/printable.js';
import { checkGiven, type OptionNames, refuseUnknown, unknownIn } from '../../core/toolkit/given-options.js';

/** Our identity for ZooKeeper's ACLs. */
export interface ZooKeeperAuth {
  /** Default `digest`. */
  readonly scheme?: string | undefined;
  /** For `digest`: `user:password`, in the clear. Sent at every connection, never logged. */
  readonly credentials: string;
}

/** One entry of an ACL, as zkCli writes it: `scheme:id:permissions`. */
export interface ZooKeeperAcl {
  /** `world`, `auth`, `digest`, `ip`, … */
  readonly scheme: string;
  /** `anyone` for `world`, empty for `auth`, `user:base64(sha1(user:password))` for `digest`. */
  readonly id: string;
  /** Letters of `cdrwa`: create, delete, read, write, admin. */
  readonly permissions: string;
}

/** Where ZooKeeper is, and where in it the locks are. */
export interface ZooKeeperLockProviderOptions {
  /**
   * `host:port` of the servers, separated by commas, such as `zk1:2181,zk2:2181,[fd00::3]:2181`; the port is 2181 by default. A path, one
   * time and at the end, is the node below which all locks are, created when it is missing: `zk1:2181,zk2:2181/shop/locks`. A name stands for all of its addresses, which are looked up again for each round of tries.
   */
  readonly connectString: string;
  /** Encrypts the connections: `true`, or the options of `tls.connect`, such as `{ ca, cert, key }`. Default: false. */
  readonly tls?: ConnectionOptions | boolean | undefined;
  /**
   * After how much silence of this process ZooKeeper frees its locks. The server may grant another timeout (by default 2 to
   * 20 of its ticks), which then counts. Default 20 s, at least 200 ms and at most 24.8 days.
   */
  readonly sessionTimeout?: ConfiguredDuration | undefined;
  /**
   * The recipe of Curator that the nodes follow, for Java and Python services that take the same locks.
   *
   * - `read-write` (default): `InterProcessReadWriteLock`. An exclusive lock is its write lock.
   * - `mutex`: `InterProcessMutex`. No shared locks, because it does not see readers.
   *
   * Limited locks exist with both. For Curator each of their holders is an exclusive one.
   *
   * The two do not see each other, nor do they in Curator, so all services that share a key must use the same recipe.
   */
  readonly recipe?: 'read-write' | 'mutex' | undefined;
  /** Our identity for ACLs: `{ scheme?, credentials }`. Default: nobody. */
  readonly auth?: ZooKeeperAuth | undefined;
  /**
   * The ACL of every node that is created. Its owner needs `cdrw`. Default: with `auth` all permissions for its owner only, else all
   * permissions for everybody.
   */
  readonly acl?: readonly ZooKeeperAcl[] | undefined;
}

/** One of the servers. */
export interface Server {
  readonly host: string;
  readonly port: number;
}

/** The options, checked. */
export interface ZooKeeperSettings {
  readonly servers: readonly Server[];
  readonly tls: ConnectionOptions | undefined;
  /** The node below which all locks are; empty for the root. */
  readonly root: string;
  readonly sessionTimeout: number;
  readonly recipe: NonNullable<ZooKeeperLockProviderOptions['recipe']>;
  readonly auth: { readonly scheme: string; readonly credentials: string } | undefined;
  readonly acl: readonly ZooKeeperAcl[];
}

const OPTIONS: OptionNames<ZooKeeperLockProviderOptions> = {
  connectString: true,
  tls: true,
  sessionTimeout: true,
  recipe: true,
  auth: true,
  acl: true,
};
const AUTH: OptionNames<ZooKeeperAuth> = { scheme: true, credentials: true };

/** How long the start waits for its session, in ms. For a shorter session its timeout is enough. */
const START_TIMEOUT = 5_000;

/** A name or an IPv4 address, or an IPv6 address in brackets; and a port. */
const SERVER = /^(?:\[([\da-f:.]+)\]|([^\s:/,;@[\]]+))(?::(\d{1,5}))?$/i;
const PORT = 2181;
const EVERYBODY: ZooKeeperAcl = { scheme: 'world', id: 'anyone', permissions: 'cdrwa' };
/** The permissions that locks need. */
const NEEDED = ['c', 'd', 'r', 'w'];
const OWNER: ZooKeeperAcl = { scheme: 'auth', id: '', permissions: 'cdrwa' };

/** @throws LockConfigError for options that cannot work. */
export function readOptions(options: ZooKeeperLockProviderOptions): ZooKeeperSettings {
  checkGiven('ZooKeeperLockProvider', options, "new ZooKeeperLockProvider({ connectString: 'localhost:2181' })");
  const { servers, root } = readConnectString(options);
  refuseUnknown('ZooKeeperLockProvider', options, OPTIONS);
  const { recipe = 'read-write' } = options;
  const auth = readAuth(options.auth);
  if (!['read-write', 'mutex'].includes(recipe)) {
    refuse(`"recipe" must be 'read-write' or 'mutex', and is ${shown(recipe)}.`);
  }
  const { acl = [auth ? OWNER : EVERYBODY] } = options;
  return {
    servers,
    tls: readTls(options.tls),
    root,
    sessionTimeout: toMilliseconds(options.sessionTimeout ?? '20s', 'sessionTimeout', { min: 200 }),
    recipe,
    auth,
    acl: readAcl(acl),
  };
}

/** How long the start waits for its session, in ms. */
export function startTimeoutOf({ sessionTimeout }: Pick<ZooKeeperSettings, 'sessionTimeout'>): number {
  return Math.min(sessionTimeout, START_TIMEOUT);
}

// An invalid value is never shown: it may contain a password.
function readConnectString(options: { readonly connectString?: unknown }): {
  servers: readonly Server[];
  root: string;
} {
  const { connectString: text } = options;
  if (typeof text !== 'string') {
    return refuse(`"connectString" is missing.${unknownIn(options, OPTIONS)} Write it as zk1:2181,zk2:2181.`);
  }
  const slash = text.indexOf('/');
  const [list, path] = slash < 0 ? [text, ''] : [text.slice(0, slash), text.slice(slash).trim()];
  // Java's client ignores blanks and empty addresses too, such as behind the comma that a template leaves at the end.
  const [first = '', ...others] = list.split(',').flatMap((address) => address.trim() || []);
  const servers = [first, ...others].map(readServer);
  // In "zk1/shop,zk2/shop" the folder would be "/shop,zk2/shop", and another one for a service that lists the servers in another order.
  if (/[,;\s]/.test(path)) {
    return refuse(
      '"connectString" has a comma, a semicolon or a blank in its path. Write the folder one time, behind the last address: zk1:2181,zk2:2181/shop.',
    );
  }
  return { servers, root: readRoot(path) };
}

function readServer(text: string): Server {
  const [, address, name, port = PORT] = SERVER.exec(text) ?? [];
  const server = { host: address ?? name ?? '', port: Number(port) };
  if (server.host !== '' && server.port <= 65_535) return server;
  return refuse(
    '"connectString" must be names or addresses of servers with their ports, such as zk1:2181,[fd00::2]:2181/path; credentials belong into "auth".',
  );
}

function readTls(tls: unknown): ConnectionOptions | undefined {
  if (tls === undefined || tls === false) return undefined;
  if (tls === true) return {};
  return typeof tls === 'object' && tls !== null
    ? tls
    : refuse(
        `"tls" must be true, false, or the options of tls.connect, such as { ca }, and is ${typeof tls === 'string' ? 'a text' : shown(tls)}.`,
      );
}

function readRoot(path: string): string {
  if (path === '' || path === '/') return '';
  const isPath = path
    .slice(1)
    .split('/')
    .every(
      (segment) => segment !== '' && segment !== '.' && segment !== '..' && !/[\p{Cc}\p{Cs}\p{Co}]/u.test(segment),
    );
  return isPath
    ? path
    : refuse(
        `the path of "connectString" must have no empty parts, "." and "..", such as /shop/locks, and is ${shown(path)}.`,
      );
}

function readAuth(auth: ZooKeeperAuth | null | undefined): ZooKeeperSettings['auth'] {
  if (auth === undefined) return undefined;
  const { scheme = 'digest', credentials }: { readonly scheme?: unknown; readonly credentials?: unknown } = auth ?? {};
  if (typeof scheme === 'string' && typeof credentials === 'string' && credentials !== '') {
    refuseUnknown('ZooKeeperLockProvider, "auth"', auth as ZooKeeperAuth, AUTH);
    return { scheme, credentials };
  }
  return refuse('"auth" needs credentials: for the scheme digest write { credentials: \'user:password\' }.');
}

function readAcl(acl: unknown): readonly ZooKeeperAcl[] {
  const isAcl = (entry: Partial<Record<keyof ZooKeeperAcl, unknown>> | null | undefined): boolean =>
    typeof entry?.scheme === 'string' &&
    typeof entry.id === 'string' &&
    typeof entry.permissions === 'string' &&
    /^[cdrwa]+$/.test(entry.permissions);
  if (!Array.isArray(acl) || acl.length === 0 || !acl.every(isAcl)) {
    return refuse(
      `"acl" must be a list of { scheme, id, permissions }, with permissions of the letters cdrwa, and is ${typeof acl === 'string' ? 'a text' : shown(acl)}.`,
    );
  }
  const entries = acl as readonly ZooKeeperAcl[];
  // Which entries are ours is not known here: the server adds up the permissions of all that match.
  const granted = entries.map(({ permissions }) => permissions).join('');
  if (NEEDED.every((permission) => granted.includes(permission))) return entries;
  return refuse(
    `"acl" must contain the permissions c, d, r and w, and has ${shown(granted)}: locks cannot be acquired without c and r, released without d, and renewed without w.`,
  );
}

function refuse(what: string): never {
  throw new LockConfigError(`ZooKeeperLockProvider: ${what}`);
}
