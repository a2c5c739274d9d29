import type { Diagnostic } from '../../api/lock-provider.js';
import type { Session } from './session.js';
import type { ZooKeeperSettings } from './zookeeper-options.js';

/** Finds settings that weaken the guarantee, as far as a client can see them. */
export function diagnose({ sessionTimeout }: ZooKeeperSettings, session: Session): Diagnostic[] {
  const found: Diagnostic[] = [];
  if (session.lifetime.timeout !== sessionTimeout) {
    found.push({
      severity: 'warning',
      message:
        `ZooKeeper set the session timeout to ${session.lifetime.timeout} ms instead of ${sessionTimeout} ms, so locks held by a crashed process stay busy for that long. ` +
        'Change sessionTimeout, or minSessionTimeout and maxSessionTimeout on the servers.',
    });
  }
  if (session.client.addresses === 1) {
    found.push({
      severity: 'warning',
      message:
        'connectString resolves to a single server. While it is down, locks cannot be acquired. List all servers in an ensemble of at least three, or a host name that resolves to all of them.',
    });
  }
  return found;
}
