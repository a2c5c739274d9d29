import type { Diagnostic } from '../../api/lock-provider.js';
import { diagnoseServer, permissionScript, type ServerCall } from './client/server-diagnostics.js';

/** How the backend uses its servers. */
export interface Usage {
  readonly isCluster: boolean;
  readonly waitReplicas: number;
  /** One of our keys. */
  readonly key: string;
  /** One of our channels. */
  readonly channel: string;
  /** The ACL pattern for all our keys and channels. */
  readonly pattern: string;
}

/**
 * Reports server settings that weaken the guarantee, if `INFO` and the ACL reveal them, and anything that couldn't
 * be checked. A message shared by several servers is reported only once.
 */
export async function diagnoseServers(
  serverCalls: readonly ServerCall[],
  { isCluster, waitReplicas, key, channel, pattern }: Usage,
): Promise<Diagnostic[]> {
  const args = [key, channel, isCluster ? '1' : '0', String(waitReplicas)];
  const needs = { waitReplicas, script: PERMISSION_SCRIPT, args, pattern };
  const diagnostics = await Promise.all(serverCalls.map((call) => diagnoseServer(call, needs)));
  return [...new Map(diagnostics.flat().map((diagnostic) => [diagnostic.message, diagnostic])).values()];
}

/**
 * Checks permission for the commands that locks need on a single server or a Cluster.
 *
 * ARGV: a key, a channel, whether the server is a Cluster node, and how many replicas must acknowledge writes.
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
