import { FailoverLockProvider } from '../../lib/providers/failover/failover-lock-provider.js';
import { withIntervals } from '../failover/fleet-rig.js';
import { describeLockProvider } from '../../lib/provider-kit/index.js';
import { common, members, severalServersHarness } from './several-servers.js';

// A new process waits for a window before it grants, so each case takes at least that long.
const WINDOW = 5_000;

describeLockProvider(
  'failover on Redis with MariaDB behind it',
  severalServersHarness(
    {
      capabilities: {
        ...common,
        ...{ fencing: true, wideTokens: true, lease: 'session', minHold: false },
      },
      records: true,
      lease: WINDOW,
      // A member keeps the lock of a process that died for two windows.
      bounds: { expiry: WINDOW, takeOver: WINDOW + 1_500 },
    },
    // A case that cuts both off expects them back, not a switch: a provider that fails for less than half an hour is not down.
    () =>
      withIntervals(new FailoverLockProvider({ providers: members, casStore: 'mariadb', window: WINDOW }), {
        probeInterval: 3_600_000,
      }),
  ),
);
