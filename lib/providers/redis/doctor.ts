import type { Finding } from '../../engine/lock-provider.js';
import type { Ask } from './servers.js';

/** What in the server's configuration weakens the guarantee, as far as `INFO` tells. Answers nothing where the ACL refuses it. */
export async function examine(asks: readonly Ask[]): Promise<Finding[]> {
  const each = await Promise.all(asks.map(examineServer));
  return each.flat();
}

async function examineServer(ask: Ask): Promise<Finding[]> {
  let text: unknown;
  try {
    text = await ask('info');
  } catch {
    return [];
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
  const policy = info.get('maxmemory_policy') ?? 'noeviction';
  if (policy !== 'noeviction' && info.get('maxmemory') !== '0') {
    find(
      'warning',
      `maxmemory-policy is ${policy}: a lock that is held can be evicted, and then two may hold it. Set noeviction, or use a server for locks alone.`,
    );
  }
  if (info.get('aof_enabled') === '0') {
    find('warning', 'Redis runs without AOF: a restart forgets the locks that are held. Set appendonly yes.');
  }
  if (Number(info.get('connected_slaves') ?? 0) > 0) {
    find(
      'warning',
      'Redis has replicas, and replication is asynchronous: after a fail-over two may hold a lock that was taken shortly before. Fence writes with the token.',
    );
  }
  return findings;
}
