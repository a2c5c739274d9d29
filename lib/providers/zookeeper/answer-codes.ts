import { type FailureKind, ZooKeeperFailure } from './zookeeper-client.js';

export const NO_NODE = -101;
/** AUTHFAILED and SESSIONCLOSEDREQUIRESASLAUTH: the server closes the session, and would close each further one of this client. */
const CLOSING: readonly number[] = [-115, -124];
/** Refusals that every server would repeat: unknown requests, ACLs, the tree and local sessions. A quorum may come back, and a quota be raised. */
const DEFINITE: readonly number[] = [-6, -8, -102, -108, -114, -120];
const NO_AUTH = -102;
/** SESSION_EXPIRED and SESSION_MOVED. The next greeting shows which. */
const GONE: readonly number[] = [-112, -118];

/** `KeeperException.Code`, and for an operator the reason and the remedy. Codes that are not here are refusals as well. */
const MEANINGS: Readonly<Record<number, readonly [kind: FailureKind, name: string, advice?: string]>> = {
  [NO_NODE]: ['no-node', 'NO_NODE'],
  [-103]: ['changed', 'BAD_VERSION'],
  [-110]: ['exists', 'NODE_EXISTS'],
  [-111]: ['not-empty', 'NOT_EMPTY'],
  [-4]: ['unanswered', 'CONNECTION_LOSS'],
  [-7]: ['unanswered', 'OPERATION_TIMEOUT'],
  [-122]: ['unanswered', 'REQUEST_TIMEOUT'],
  [-127]: ['unanswered', 'THROTTLED_OP'],
  [-6]: ['refused', 'UNIMPLEMENTED', 'use ZooKeeper 3.4 or later'],
  [-8]: ['refused', 'BAD_ARGUMENTS', 'check the path of "connectString", and the log of the server'],
  [NO_AUTH]: ['refused', 'NO_AUTH', 'check "auth", and the ACLs of the path of "connectString" and below it'],
  [-108]: ['refused', 'NO_CHILDREN_FOR_EPHEMERALS', 'give "connectString" a path of persistent nodes'],
  [-114]: ['refused', 'INVALID_ACL', 'check "acl", and that "auth" identifies its owner'],
  [-115]: ['refused', 'AUTH_FAILED', 'check "auth", and that the server has a provider for its scheme'],
  [-119]: ['refused', 'NOT_READ_ONLY', 'the server is read-only, because it has no quorum. Check the other servers'],
  [-120]: [
    'refused',
    'EPHEMERAL_ON_LOCAL_SESSION',
    'let the servers upgrade sessions: localSessionsUpgradingEnabled=true',
  ],
  [-124]: [
    'refused',
    'SESSION_CLOSED_REQUIRE_SASL_AUTH',
    'the server demands SASL, which this client does not know (sessionRequireClientSASLAuth, or enforce.auth.schemes): let it accept digest or x509, and give "auth", or a certificate in "tls"',
  ],
  [-125]: ['refused', 'QUOTA_EXCEEDED', 'raise the quota of the path of "connectString" or of the node above it'],
};

export function kindOf(code: number): FailureKind {
  return MEANINGS[code]?.[0] ?? 'refused';
}

/** @param denied what an ACL lacks, if it is an ACL that refuses */
export function failureOf(code: number, denied?: string): ZooKeeperFailure {
  const [kind, name, known] = MEANINGS[code] ?? ['refused', 'an error', 'see the log of the server'];
  const advice = code === NO_AUTH ? (denied ?? known) : known;
  const message = `ZooKeeper answers ${name} (${code})${advice === undefined ? '' : `: ${advice}`}.`;
  return new ZooKeeperFailure(kind, message, { isDefinite: DEFINITE.includes(code) });
}

/** Whether the server closes the session with this answer, because it does not accept this client. */
export function closesSession(code: number): boolean {
  return CLOSING.includes(code);
}

/** Whether the session is not on the connection of this answer. */
export function isSessionGone(code: number): boolean {
  return GONE.includes(code);
}
