/**
 * Why an operation failed:
 * - `no-node`, `exists`, `not-empty`, `changed`: the state of the tree.
 * - `refused`: an ACL, a quota, or a limit.
 * - `unanswered`: it is unknown whether the operation was executed.
 * - `misconfigured`: our own options are invalid. Nothing was sent.
 */
export type FailureKind = 'no-node' | 'exists' | 'not-empty' | 'changed' | 'refused' | 'unanswered' | 'misconfigured';

export class ZooKeeperFailure extends Error {
  /** Whether all servers would refuse the operation again. */
  readonly isDefinite: boolean;

  constructor(
    readonly kind: FailureKind,
    message: string,
    { isDefinite = false, ...options }: ErrorOptions & { readonly isDefinite?: boolean } = {},
  ) {
    super(message, options);
    this.name = new.target.name;
    this.isDefinite = isDefinite;
  }
}

export function isFailure(error: unknown, ...kinds: readonly FailureKind[]): error is ZooKeeperFailure {
  return error instanceof ZooKeeperFailure && kinds.includes(error.kind);
}

/** The failure of a request that was never sent. */
export function noConnection(): ZooKeeperFailure {
  return new ZooKeeperFailure('unanswered', 'There is no connection to ZooKeeper.');
}

/** SESSION_EXPIRED and SESSION_MOVED. The next connect response shows which one it is. */
export const SESSION_GONE: readonly number[] = [-112, -118];
/**
 * AUTHFAILED and SESSIONCLOSEDREQUIRESASLAUTH: the server closes the session, as it would any other session of this
 * client.
 */
export const CLOSES_SESSION: readonly number[] = [-115, -124];
/** Refusals that a retry can't change. The quorum and quotas can change, so their codes are not listed. */
const DEFINITE: readonly number[] = [-6, -8, -102, -108, -114, -120];
const NO_AUTH = -102;

/** `KeeperException.Code`, with advice for operators. All other codes count as refusals. */
const MEANINGS: Readonly<Record<number, readonly [kind: FailureKind, name: string, advice?: string]>> = {
  [-101]: ['no-node', 'NO_NODE'],
  [-103]: ['changed', 'BAD_VERSION'],
  [-110]: ['exists', 'NODE_EXISTS'],
  [-111]: ['not-empty', 'NOT_EMPTY'],
  [-4]: ['unanswered', 'CONNECTION_LOSS'],
  [-7]: ['unanswered', 'OPERATION_TIMEOUT'],
  [-122]: ['unanswered', 'REQUEST_TIMEOUT'],
  [-127]: ['unanswered', 'THROTTLED_OP'],
  [-6]: ['refused', 'UNIMPLEMENTED', 'use ZooKeeper 3.4 or later'],
  [-8]: ['refused', 'BAD_ARGUMENTS', 'check the path in "connectString"'],
  [NO_AUTH]: ['refused', 'NO_AUTH', 'check "auth" and the ACLs on and below the path in "connectString"'],
  [-108]: ['refused', 'NO_CHILDREN_FOR_EPHEMERALS', 'use only persistent nodes in the "connectString" path'],
  [-114]: ['refused', 'INVALID_ACL', 'check "acl", and that "auth" identifies the owner'],
  [-115]: ['refused', 'AUTH_FAILED', 'check the credentials in "auth", and that the server supports its scheme'],
  [-119]: ['refused', 'NOT_READ_ONLY', 'the server has lost its quorum and is read-only. Check the other servers'],
  [-120]: [
    'refused',
    'EPHEMERAL_ON_LOCAL_SESSION',
    'locks need ephemeral nodes. Set localSessionsUpgradingEnabled=true or localSessionsEnabled=false on all servers',
  ],
  [-124]: [
    'refused',
    'SESSION_CLOSED_REQUIRE_SASL_AUTH',
    'the server requires authentication. SASL is not supported: allow digest or x509 on the servers, and set "auth" or a certificate in "tls"',
  ],
  [-125]: ['refused', 'QUOTA_EXCEEDED', 'raise the quota on the path in "connectString" or on a node above it'],
};

/** @param denied the missing permission, for a refusal by an ACL */
export function failureOf(code: number, denied?: string): ZooKeeperFailure {
  const [kind, name, known] = MEANINGS[code] ?? ['refused', 'an error', 'check the server log'];
  const advice = code === NO_AUTH ? (denied ?? known) : known;
  const message = `ZooKeeper returned ${name} (${code})${advice === undefined ? '' : `: ${advice}`}.`;
  return new ZooKeeperFailure(kind, message, { isDefinite: DEFINITE.includes(code) });
}
