import type { Diagnostic } from '../../api/lock-provider.js';
import { isForbidden } from '../redis/client/refusals.js';
import { diagnoseServer, permissionScript, type ServerCall } from '../redis/client/server-diagnostics.js';
import type { RedlockKeyLayout } from './key-layout.js';
import type { RedlockNode } from './node.js';

const PERMISSION_SCRIPT = permissionScript('');

/** Reports node settings that weaken the guarantee. */
export async function diagnoseNodes(
  nodes: readonly RedlockNode[],
  layout: RedlockKeyLayout,
  delayedRestart: boolean,
): Promise<Diagnostic[]> {
  const diagnostics: Diagnostic[] = [];
  if (nodes.length % 2 === 0) {
    diagnostics.push({
      severity: 'warning',
      message: `${nodes.length} nodes are no more fault-tolerant than ${nodes.length - 1}. Use an odd number of nodes.`,
    });
  }
  const each = await Promise.all(nodes.map((node) => diagnoseNode(node.call.bind(node), layout, delayedRestart)));
  each.forEach((found, index) => {
    for (const { severity, message } of found) diagnostics.push({ severity, message: `Node ${index + 1}: ${message}` });
  });
  return diagnostics;
}

async function diagnoseNode(
  call: ServerCall,
  { counter, run }: RedlockKeyLayout,
  delayedRestart: boolean,
): Promise<Diagnostic[]> {
  const needs = { waitReplicas: 0, script: PERMISSION_SCRIPT, args: [counter], pattern: `${counter}*` };
  const diagnostics = await diagnoseServer(call, needs);
  if (delayedRestart && (await call('get', run).then(() => false, isForbidden))) {
    diagnostics.push({
      severity: 'warning',
      message: `The ACL denies this user access to key ${run}, so with delayedRestart, each process waits for maxLease at startup. Grant ~${counter}*.`,
    });
  }
  const info = String(await call('info').catch(() => ''));
  if (/^cluster_enabled:1/m.test(info)) {
    diagnostics.push({
      severity: 'error',
      message:
        'This server is a Redis Cluster node, which rejects keys owned by other nodes and may fail over. Redlock needs independent servers.',
    });
  }
  if (/^aof_enabled:0/m.test(info) && !delayedRestart) {
    diagnostics.push({
      severity: 'warning',
      message:
        'If this server restarts within a lease, it may vote again, and two processes may hold a lock. Set appendonly yes and appendfsync always, or delayedRestart: true.',
    });
  }
  return diagnostics;
}
