import type { Diagnostic } from '../../api/lock-provider.js';
import type { Connection } from './connection.js';

/** Reports server settings and statistics that put locks at risk. */
export async function diagnose(connection: Connection): Promise<Diagnostic[]> {
  const [{ evictions = '0' }, settings] = await Promise.all([
    connection.statistics(),
    connection.statistics('settings'),
  ]);
  const evicts = settings.evictions !== 'off';
  const found: Diagnostic[] = [
    {
      severity: 'warning',
      message: `memcached loses all locks when it restarts or is flushed${evicts ? ', and any lock when it evicts items' : ''}; two callers can then hold the same lock. Use it only to avoid duplicate work. If an overlap would be harmful, use another provider.`,
    },
  ];
  if (evicts && evictions !== '0') {
    found.push({
      severity: 'warning',
      message: `This memcached server has evicted ${evictions} items since it started, and it can evict locks, too. Use a dedicated server for locks, or start memcached with -M.`,
    });
  }
  return found;
}
