import type { Finding } from '../../api/lock-provider.js';
import type { Session } from './session.js';
import type { ZooKeeperSettings } from './zookeeper-options.js';

/** What weakens the guarantee, as far as a client can tell. */
export function examine({ servers, sessionTimeout }: ZooKeeperSettings, session: Session): Finding[] {
  const findings: Finding[] = [];
  if (session.timeout !== sessionTimeout) {
    findings.push({
      severity: 'warning',
      message:
        `ZooKeeper grants sessions of ${session.timeout} ms instead of the ${sessionTimeout} ms that were asked for: locks of a crashed process are kept for that long. ` +
        'Change sessionTimeout, or minSessionTimeout and maxSessionTimeout of the servers.',
    });
  }
  if (!servers.includes(',')) {
    findings.push({
      severity: 'warning',
      message:
        'connectString names one server: when it is gone, so are the locks. Name all servers of an ensemble of three or more.',
    });
  }
  return findings;
}
