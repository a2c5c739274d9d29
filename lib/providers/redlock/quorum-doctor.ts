import type { Finding } from '../../api/lock-provider.js';
import { examinePermissions, examineServer } from '../redis/doctor.js';
import { permissionScript } from '../redis/lua/permissions.js';
import type { Ask } from '../redis/servers.js';
import type { QuorumKeyLayout } from './quorum-key-layout.js';

const PERMISSION_SCRIPT = permissionScript('');

/** What in the nodes' configuration weakens the guarantee. */
export async function examineNodes(
  nodes: readonly { ask: Ask }[],
  layout: QuorumKeyLayout,
  delayedRestart: boolean,
): Promise<Finding[]> {
  const findings: Finding[] = [];
  if (nodes.length % 2 === 0) {
    findings.push({
      severity: 'warning',
      message: `${nodes.length} nodes bear no more failures than ${nodes.length - 1}: use an odd number.`,
    });
  }
  const each = await Promise.all(nodes.map((node) => examineNode(node.ask.bind(node), layout, delayedRestart)));
  each.forEach((found, index) => {
    for (const { severity, message } of found) findings.push({ severity, message: `Node ${index + 1}: ${message}` });
  });
  return findings;
}

async function examineNode(ask: Ask, { counter, run }: QuorumKeyLayout, delayedRestart: boolean): Promise<Finding[]> {
  // What a Cluster means for a majority is said below.
  const findings = await examineServer(ask, { isCluster: true, waitReplicas: 0 });
  findings.push(...(await examinePermissions(ask, PERMISSION_SCRIPT, [counter], `keys such as ${counter}`)));
  if (delayedRestart && (await isRefused(ask('get', run)))) {
    findings.push({
      severity: 'warning',
      message: `The ACL of this user refuses the key ${run}: with delayedRestart each process waits for maxLease after its own start. Allow ~${counter}*.`,
    });
  }
  const info = String(await ask('info').catch(() => ''));
  if (/^cluster_enabled:1/m.test(info)) {
    findings.push({
      severity: 'error',
      message:
        'It is a node of a Redis Cluster, which refuses the keys of other nodes and fails over: a majority needs independent servers.',
    });
  }
  if (/^aof_enabled:0/m.test(info) && !delayedRestart) {
    findings.push({
      severity: 'warning',
      message:
        'If it restarts within a lease it votes again, and two may hold a lock. Set appendonly yes and appendfsync always, or delayedRestart: true.',
    });
  }
  return findings;
}

async function isRefused(answer: Promise<unknown>): Promise<boolean> {
  try {
    await answer;
    return false;
  } catch (error) {
    return error instanceof Error && error.message.startsWith('NOPERM');
  }
}
