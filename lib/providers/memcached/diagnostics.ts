import type { Diagnostic } from '../../api/lock-provider.js';
import type { Connection } from './connection.js';

/** The state and settings of the server by which it loses locks. */
export async function diagnose(connection: Connection): Promise<Diagnostic[]> {
  const [{ evictions = '0' }, settings] = await Promise.all([
    connection.statistics(),
    connection.statistics('settings'),
  ]);
  const evicts = settings.evictions !== 'off';
  const found: Diagnostic[] = [
    {
      severity: 'warning',
      message: `memcached loses all locks when it restarts or is flushed${evicts ? ', and single ones when it evicts items' : ''}; two callers then hold one lock. Use it to avoid doing work twice, and another provider to prevent damage.`,
    },
  ];
  if (evicts && evictions !== '0') {
    found.push({
      severity: 'warning',
      message: `This memcached has evicted ${evictions} items since it started, and it evicts locks as well. Give the locks a server of their own, or start it with -M.`,
    });
  }
  return found;
}
