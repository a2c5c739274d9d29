import type { Diagnostic } from '../../api/lock-provider.js';
import { type Ask, examinePermissions, examineServer } from './client/server-diagnostics.js';
import { permissionScript } from './client/server-diagnostics.js';

/** How the backend uses the servers that are examined. */
export interface Usage {
  readonly isCluster: boolean;
  readonly waitReplicas: number;
  /** A key and a channel of ours. */
  readonly key: string;
  readonly channel: string;
  /** The pattern of all of them. */
  readonly pattern: string;
}

/**
 * The settings of the servers that weaken the guarantee, as far as `INFO` and the ACL show them, and what could not be checked. The same
 * message from several servers is reported once.
 */
export async function examine(asks: readonly Ask[], usage: Usage): Promise<Diagnostic[]> {
  const diagnostics = await Promise.all(
    asks.flatMap((ask) => [examineServer(ask, usage.waitReplicas), examineAcl(ask, usage)]),
  );
  return [...new Map(diagnostics.flat().map((diagnostic) => [diagnostic.message, diagnostic])).values()];
}

/**
 * For the locks of one server or a Cluster.
 *
 * ARGV: a key, a channel, whether the server is one of a Cluster, how many replicas must acknowledge.
 */
const PERMISSION_SCRIPT = permissionScript(`
local channel, isCluster, waitReplicas = ARGV[2], ARGV[3] == '1', ARGV[4] ~= '0'
for _, command in ipairs({ 'exists', 'zcard' }) do check('!', command, key) end
check('!', 'setrange', key, '0', 'w')
check('!', 'zadd', key, '0', 'x')
for _, command in ipairs({ 'zrem', 'zscore' }) do check('!', command, key, 'x') end
for _, command in ipairs({ 'zrange', 'zrangebyscore' }) do check('!', command, key, '0', '0') end
check('!', isCluster and 'spublish' or 'publish', channel, 'x')
check('!', isCluster and 'ssubscribe' or 'subscribe', channel)
if isCluster then checkPart('!', 'cluster', 'slots') end
if waitReplicas then check('!', 'wait', '1', '0') end
`);

function examineAcl(ask: Ask, { isCluster, waitReplicas, key, channel, pattern }: Usage): Promise<Diagnostic[]> {
  const args = [key, channel, isCluster ? '1' : '0', String(waitReplicas)];
  return examinePermissions(ask, PERMISSION_SCRIPT, args, pattern);
}
