import type { Diagnostic } from '../../api/lock-provider.js';
import type { Session } from './session.js';
import type { ZooKeeperSettings } from './zookeeper-options.js';

/** Settings that weaken the guarantee, as far as a client can see them. */
export function diagnose({ sessionTimeout }: ZooKeeperSettings, session: Session): Diagnostic[] {
  const found: Diagnostic[] = [];
  if (session.timeout !== sessionTimeout) {
    found.push({
      severity: 'warning',
      message:
        `ZooKeeper grants sessions of ${session.timeout} ms instead of the ${sessionTimeout} ms that were asked for, so locks of a crashed process are kept for that long. ` +
        'Change sessionTimeout, or minSessionTimeout and maxSessionTimeout of the servers.',
    });
  }
  if (session.client.addresses === 1) {
    found.push({
      severity: 'warning',
      message:
        'connectString stands for one server: when that is down, nobody can lock. Name all servers of an ensemble of three or more, or a name that has all of their addresses.',
    });
  }
  return found;
}
