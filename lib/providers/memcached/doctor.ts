import type { Finding } from '../../api/lock-provider.js';
import type { Connection } from './connection.js';

/** What of the server's state and settings makes it lose locks. */
export async function findingsOf(connection: Connection): Promise<Finding[]> {
  const [{ evictions = '0' }, settings] = await Promise.all([
    connection.statistics(),
    connection.statistics('settings'),
  ]);
  const evicts = settings.evictions !== 'off';
  const findings: Finding[] = [
    {
      severity: 'warning',
      message: `memcached loses all locks when it restarts or is flushed${evicts ? ', and any when it evicts' : ''}, and two then hold one: use it to avoid doing work twice, and another provider to prevent damage.`,
    },
  ];
  if (evicts && evictions !== '0') {
    findings.push({
      severity: 'warning',
      message: `This memcached has evicted ${evictions} items since it started, and evicts locks as well: give the locks a server of their own, or start it with -M.`,
    });
  }
  return findings;
}
