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
  type Settings,
  text,
} from '../../core/toolkit/options.js';

/** This client's identity for ACLs. */
export interface ZooKeeperAuth {
  /** Default `digest`. */
  readonly scheme?: string | undefined;
  /** For `digest`: `user:password` in plain text. Sent on every connection, never logged. */
  readonly credentials: string;
}

/** One ACL entry, in zkCli's `scheme:id:permissions` form. */
export interface ZooKeeperAcl {
  /** `world`, `auth`, `digest`, `ip`, … */
  readonly scheme: string;
  /** `anyone` for `world`, empty for `auth`, `user:base64(sha1(user:password))` for `digest`. */
  readonly id: string;
  /** Letters of `cdrwa`: create, delete, read, write, admin. */
  readonly permissions: string;
}

export interface ZooKeeperLockProviderOptions {
  /**
   * The servers as `host:port`, separated by commas, such as `zk1:2181,zk2:2181,[fd00::3]:2181`. The default port is
   * 2181. A trailing path specifies the node that contains all locks, as in `zk1:2181,zk2:2181/shop/locks`. That node
   * is created if missing. A host name expands to all of its addresses and is resolved again in each round of
   * connection attempts.
   */
  readonly connectString: string;
  /** Encrypts connections: `true`, or `tls.connect` options, such as `{ ca, cert, key }`. Default: false. */
  readonly tls?: ConnectionOptions | boolean | undefined;
  /**
   * How long a process may be silent before ZooKeeper frees its locks. The server may impose a different timeout
   * (by default, between 2 and 20 of its ticks). Default 20 s, at least 200 ms and at most 24.8 days.
   */
  readonly sessionTimeout?: ConfiguredDuration | undefined;
  /**
   * The Curator recipe that the nodes follow, for Java and Python services that use the same locks.
   *
   * - `read-write` (default): `InterProcessReadWriteLock`. Exclusive locks use its write lock.
   * - `mutex`: `InterProcessMutex`. It doesn't support shared locks, because it ignores readers.
   *
   * Both support limited locks. Curator treats each limited holder as an exclusive one.
   *
   * As in Curator, the two recipes don't see each other's locks, so all services that share a key must use the same
   * one.
   */
  readonly recipe?: 'read-write' | 'mutex' | undefined;
  /** This client's identity for ACLs: `{ scheme?, credentials }`. Default: none. */
  readonly auth?: ZooKeeperAuth | undefined;
  /**
   * The ACL of every node created. This client needs `cdrw`. Default: with `auth`, all permissions for this
   * client only; otherwise, all permissions for everyone.
   */
  readonly acl?: readonly ZooKeeperAcl[] | undefined;
}

export interface Server {
  readonly host: string;
  readonly port: number;
}

interface ConnectString {
  readonly servers: readonly Server[];
  /** The node that contains all locks; empty for the root. */
  readonly root: string;
}

/** How long startup waits for a session, in ms, unless the session timeout is shorter. */
const START_TIMEOUT = 5_000;

/** A host name, an IPv4 address, or an IPv6 address in brackets, with an optional port. */
const SERVER = /^(?:\[([\da-f:.]+)\]|([^\s:/,;@[\]]+))(?::(\d{1,5}))?$/i;
const PORT = 2181;
/** An absolute path without empty segments, `.`, or `..`. */
const PATH = /^(?:\/?|(?:\/(?!\.{1,2}(?:\/|$))[^/\p{Cc}\p{Cs}\p{Co}]+)+)$/u;
const EVERYBODY: ZooKeeperAcl = { scheme: 'world', id: 'anyone', permissions: 'cdrwa' };
const NEEDED = ['c', 'd', 'r', 'w'];
const OWNER: ZooKeeperAcl = { scheme: 'auth', id: '', permissions: 'cdrwa' };

const AUTH = {
  scheme: text('a scheme name').or('digest'),
  credentials: secret("a string: 'user:password' for the digest scheme", (given) =>
    typeof given === 'string' && given !== '' ? given : undefined,
  )
    .written()
    .required(),
} satisfies OptionTable<ZooKeeperAuth>;
const ACL = {
  scheme: text('a scheme name').required(),
  id: text('a text').required(),
  permissions: text('letters of cdrwa', /^[cdrwa]+$/).required(),
} satisfies OptionTable<ZooKeeperAcl>;
const OPTIONS = {
  connectString: secret(
    'server names or addresses with ports, such as zk1:2181,[fd00::2]:2181/path; credentials go in "auth"',
    readConnectString,
  )
    .written()
    .required(),
  tls: secret<ConnectionOptions | boolean>('true, false, or the options for tls.connect, such as { ca }', (tls) =>
    typeof tls === 'boolean' || (typeof tls === 'object' && tls !== null) ? tls : undefined,
  ).or(false),
  sessionTimeout: duration({ min: 200 }).or('20s'),
  recipe: oneOf('read-write', 'mutex').or('read-write'),
  auth: group("an object with credentials, such as { credentials: 'user:password' } for the digest scheme", AUTH),
  acl: listOf('a list of { scheme, id, permissions }', group('{ scheme, id, permissions }', ACL)),
} satisfies OptionTable<ZooKeeperLockProviderOptions>;

/** The validated options. */
export interface ZooKeeperSettings
  extends ConnectString, Omit<Settings<typeof OPTIONS>, 'connectString' | 'tls' | 'acl'> {
  readonly tls: ConnectionOptions | undefined;
  readonly acl: readonly ZooKeeperAcl[];
}

/** @throws LockConfigError for invalid options */
export function readOptions(options: ZooKeeperLockProviderOptions): ZooKeeperSettings {
  const owner = {
    name: 'ZooKeeperLockProvider',
    example: "new ZooKeeperLockProvider({ connectString: 'zk1:2181,zk2:2181' })",
  };
  const { connectString, tls, auth, acl = [auth ? OWNER : EVERYBODY], ...settings } = read(owner, options, OPTIONS);
  // The server combines the permissions of all entries that match the client. We can't tell here which ones match.
  const granted = acl.map(({ permissions }) => permissions).join('');
  if (!NEEDED.every((permission) => granted.includes(permission))) {
    refuse(
      owner,
      'acl',
      `must grant the permissions c, d, r, and w, but it grants ${shown(granted)}. Locks need c and r to be acquired, d to be released, and w to be renewed.`,
    );
  }
  return { ...settings, ...connectString, tls: tls === true ? {} : tls || undefined, auth, acl };
}

/** How long startup waits for a session, in ms. */
export function startTimeoutOf({ sessionTimeout }: Pick<ZooKeeperSettings, 'sessionTimeout'>): number {
  return Math.min(sessionTimeout, START_TIMEOUT);
}

function readConnectString(given: unknown, owner: Owner, name: string): ConnectString | undefined {
  if (typeof given !== 'string') return undefined;
  const [list = '', ...parts] = given.split('/');
  const path = parts.length === 0 ? '' : `/${parts.join('/')}`.trim();
  // Like the Java client, ignore blanks and empty addresses, such as one left by a template's trailing comma.
  const addresses = list.split(',').flatMap((address) => address.trim() || []);
  const servers = addresses.flatMap((address) => readServer(address) ?? []);
  if (servers.length === 0 || servers.length < addresses.length) return undefined;
  // In "zk1/shop,zk2/shop", the path would be "/shop,zk2/shop", and it would change with the order of the servers.
  if (/[,;\s]/.test(path)) {
    refuse(
      owner,
      name,
      'has a comma, semicolon, or space in its path. Put the path after the last address: zk1:2181,zk2:2181/shop.',
    );
  }
  if (!PATH.test(path)) {
    refuse(
      owner,
      name,
      `has the path ${shown(path)}, but it must not contain empty segments, "." or "..". Use a path such as /shop/locks.`,
    );
  }
  return { servers, root: path === '/' ? '' : path };
}

function readServer(address: string): Server | undefined {
  const [, ipv6, name, port = PORT] = SERVER.exec(address) ?? [];
  const host = ipv6 ?? name;
  return host === undefined || Number(port) > 65_535 ? undefined : { host, port: Number(port) };
}
