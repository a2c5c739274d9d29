import type { Finding } from '../../api/lock-provider.js';
import { PERMISSION_SCRIPT, readRefused } from './lua/permissions.js';
import type { Ask } from './servers.js';

/** How the provider uses the servers that are examined. */
export interface Usage {
  readonly isCluster: boolean;
  readonly waitReplicas: number;
  /** A key and a channel of ours. */
  readonly key: string;
  readonly channel: string;
}

/**
 * What in the servers' configuration weakens the guarantee, as far as `INFO` and the ACL tell; and what could not be
 * looked at. Servers that have the same to say say it once.
 */
export async function examine(asks: readonly Ask[], usage: Usage): Promise<Finding[]> {
  const findings = await Promise.all(asks.flatMap((ask) => [examineServer(ask, usage), examineAcl(ask, usage)]));
  return [...new Map(findings.flat().map((finding) => [finding.message, finding])).values()];
}

/** What the server says of itself. */
export async function examineServer(
  ask: Ask,
  { isCluster, waitReplicas }: Pick<Usage, 'isCluster' | 'waitReplicas'>,
): Promise<Finding[]> {
  let text: unknown;
  try {
    text = await ask('info');
  } catch (error) {
    const reason = error instanceof Error && error.message.startsWith('NOPERM') ? 'refuses' : 'does not answer';
    return [
      {
        severity: 'warning',
        message: `Redis ${reason} INFO: its version, role, eviction, persistence and replicas were not checked. Allow +info, or check them yourself.`,
      },
    ];
  }
  const info = new Map(
    String(text)
      .split(/\r?\n/)
      .map((line): [string, string] => {
        const colon = line.indexOf(':');
        return [line.slice(0, colon), line.slice(colon + 1)];
      }),
  );
  const findings: Finding[] = [];
  const find = (severity: Finding['severity'], message: string) => findings.push({ severity, message });

  const [major = 0, minor = 0] = (info.get('redis_version') ?? '').split('.').map(Number);
  if (major < 6 || (major === 6 && minor < 2)) {
    find('error', `Redis ${info.get('redis_version') ?? ''} is too old for the lock script: 6.2 or later is needed.`);
  }
  if (info.get('role') === 'slave') {
    find('error', 'This server is a replica: give the provider the address of the master.');
  }
  if (!isCluster && info.get('cluster_enabled') === '1') {
    find(
      'error',
      'This server is a node of a Redis Cluster, and was given as a single server: give the provider "cluster" with its nodes, or a Cluster client.',
    );
  }
  const policy = info.get('maxmemory_policy') ?? 'noeviction';
  if (policy !== 'noeviction' && info.get('maxmemory') !== '0') {
    find(
      'warning',
      `maxmemory-policy is ${policy}: a lock that is held can be evicted, and then two may hold it. Set noeviction, or use a server for locks alone.`,
    );
  }
  if (info.get('aof_enabled') === '0') {
    find(
      'warning',
      'Redis runs without AOF: a restart forgets the locks that are held, all whose leases last longer than it takes. Set appendonly yes.',
    );
  }
  const replicas = Number(info.get('connected_slaves') ?? 0);
  if (replicas < waitReplicas) {
    find(
      'error',
      `waitReplicas is ${waitReplicas} and ${replicas} replicas are connected: no lock can be held. Connect more, or ask for fewer.`,
    );
  } else if (replicas > 0 && waitReplicas === 0) {
    find(
      'warning',
      'Redis has replicas, and replication is asynchronous: after a fail-over two may hold a lock that was taken shortly before. Set waitReplicas, and fence writes with the token.',
    );
  }
  return findings;
}

function examineAcl(ask: Ask, { isCluster, waitReplicas, key, channel }: Usage): Promise<Finding[]> {
  const args = [key, channel, isCluster ? '1' : '0', String(waitReplicas)];
  return examinePermissions(ask, PERMISSION_SCRIPT, args, `keys and channels such as ${channel}`);
}

/** What the ACL refuses of the commands that the script asks for. */
export async function examinePermissions(
  ask: Ask,
  script: string,
  args: readonly string[],
  where: string,
): Promise<Finding[]> {
  let reply: unknown;
  try {
    reply = await ask('eval', script, '0', ...args);
  } catch (error) {
    // Without EVAL there is no lock at all.
    const message = error instanceof Error ? error.message : '';
    if (!message.startsWith('NOPERM')) return [];
    return [{ severity: 'error', message: `Redis refuses EVAL to this user: allow it (${message}).` }];
  }
  const { needed, useful } = readRefused(reply);
  const findings: Finding[] = [];
  if (needed.length > 0) {
    findings.push({
      severity: 'error',
      message: `The ACL of this user refuses what locks need, on ${where}: allow ${needed.join(' ')}.`,
    });
  }
  if (useful.length > 0) {
    findings.push({
      severity: 'warning',
      message: `The ACL of this user refuses ${useful.join(' ')}: locks work, but are found late or outlive a lost connection; see the page on Redis.`,
    });
  }
  return findings;
}
