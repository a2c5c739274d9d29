import type { ConnectionOptions } from 'node:tls';
import type { ConfiguredDuration } from '../../api/duration.js';
import { shown } from '../../api/printable.js';
import {
  duration,
  group,
  listOf,
  oneOf,
  type OptionTable,
  type Owner,
  read,
  refuse,
  secret,
  text,
} from '../../core/toolkit/options.js';

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

/** How long the start waits for its session, in ms. For a shorter session its timeout is enough. */
const START_TIMEOUT = 5_000;

/** A name or an IPv4 address, or an IPv6 address in brackets; and a port. */
const SERVER = /^(?:\[([\da-f:.]+)\]|([^\s:/,;@[\]]+))(?::(\d{1,5}))?$/i;
const PORT = 2181;
/** An absolute path without empty parts, `.` and `..`. */
const PATH = /^(?:\/?|(?:\/(?!\.{1,2}(?:\/|$))[^/\p{Cc}\p{Cs}\p{Co}]+)+)$/u;
const EVERYBODY: ZooKeeperAcl = { scheme: 'world', id: 'anyone', permissions: 'cdrwa' };
/** The permissions that locks need. */
const NEEDED = ['c', 'd', 'r', 'w'];
const OWNER: ZooKeeperAcl = { scheme: 'auth', id: '', permissions: 'cdrwa' };

const AUTH = {
  scheme: text('the name of a scheme').or('digest'),
  credentials: secret("a text: for the scheme digest 'user:password'", (given) =>
    typeof given === 'string' && given !== '' ? given : undefined,
  )
    .written()
    .required(),
} satisfies OptionTable<ZooKeeperAuth>;
const ACL = {
  scheme: text('the name of a scheme').required(),
  id: text('a text').required(),
  permissions: text('letters of cdrwa', /^[cdrwa]+$/).required(),
} satisfies OptionTable<ZooKeeperAcl>;
const OPTIONS = {
  connectString: secret(
    'names or addresses of servers with their ports, such as zk1:2181,[fd00::2]:2181/path; credentials belong into "auth"',
    readConnectString,
  )
    .written()
    .required(),
  tls: secret<ConnectionOptions | boolean>('true, false, or the options of tls.connect, such as { ca }', (tls) =>
    typeof tls === 'boolean' || (typeof tls === 'object' && tls !== null) ? tls : undefined,
  ).or(false),
  sessionTimeout: duration({ min: 200 }).or('20s'),
  recipe: oneOf('read-write', 'mutex').or('read-write'),
  auth: group("an object with credentials, such as { credentials: 'user:password' } for the scheme digest", AUTH),
  acl: listOf('a list of { scheme, id, permissions }', group('{ scheme, id, permissions }', ACL)),
} satisfies OptionTable<ZooKeeperLockProviderOptions>;

/** @throws LockConfigError for options that cannot work. */
export function readOptions(options: ZooKeeperLockProviderOptions): ZooKeeperSettings {
  const owner = {
    name: 'ZooKeeperLockProvider',
    example: "new ZooKeeperLockProvider({ connectString: 'zk1:2181,zk2:2181' })",
  };
  const { connectString, tls, auth, acl = [auth ? OWNER : EVERYBODY], ...settings } = read(owner, options, OPTIONS);
  // Which entries are ours is not known here: the server adds up the permissions of all that match.
  const granted = acl.map(({ permissions }) => permissions).join('');
  if (!NEEDED.every((permission) => granted.includes(permission))) {
    refuse(
      owner,
      'acl',
      `must contain the permissions c, d, r and w, and has ${shown(granted)}: locks cannot be acquired without c and r, released without d, and renewed without w.`,
    );
  }
  return { ...settings, ...connectString, tls: tls === true ? {} : tls || undefined, auth, acl };
}

/** How long the start waits for its session, in ms. */
export function startTimeoutOf({ sessionTimeout }: Pick<ZooKeeperSettings, 'sessionTimeout'>): number {
  return Math.min(sessionTimeout, START_TIMEOUT);
}

function readConnectString(
  given: unknown,
  owner: Owner,
  name: string,
): Pick<ZooKeeperSettings, 'servers' | 'root'> | undefined {
  if (typeof given !== 'string') return undefined;
  const [list = '', ...parts] = given.split('/');
  const path = parts.length === 0 ? '' : `/${parts.join('/')}`.trim();
  // Java's client ignores blanks and empty addresses too, such as behind the comma that a template leaves at the end.
  const addresses = list.split(',').flatMap((address) => address.trim() || []);
  const servers = addresses.flatMap((address) => readServer(address) ?? []);
  if (servers.length === 0 || servers.length < addresses.length) return undefined;
  // In "zk1/shop,zk2/shop" the folder would be "/shop,zk2/shop", and another one for a service that lists the servers in another order.
  if (/[,;\s]/.test(path)) {
    refuse(
      owner,
      name,
      'has a comma, a semicolon or a blank in its path. Write the folder one time, behind the last address: zk1:2181,zk2:2181/shop.',
    );
  }
  if (!PATH.test(path)) {
    refuse(
      owner,
      name,
      `has the path ${shown(path)}, but must have one without empty parts, "." and "..", such as /shop/locks.`,
    );
  }
  return { servers, root: path === '/' ? '' : path };
}

function readServer(address: string): Server | undefined {
  const [, ipv6, name, port = PORT] = SERVER.exec(address) ?? [];
  const host = ipv6 ?? name;
  return host === undefined || Number(port) > 65_535 ? undefined : { host, port: Number(port) };
}
