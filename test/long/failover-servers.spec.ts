import { FailoverProvider } from '../../lib/providers/failover/failover-provider.js';
import { describeLockProvider } from '../../lib/testing/index.js';
import { common, engines, severalEnginesHarness } from './several-engines.js';

// A new process waits for a window before it grants, so each case takes at least that long.
const WINDOW = 5_000;

describeLockProvider(
  'fail-over, strict, on Redis with MariaDB behind it',
  severalEnginesHarness(
    { ...common, fencing: true, wideTokens: true, lease: 'session', minHold: false, queue: 'native' },
    WINDOW,
    () =>
      new FailoverProvider({
        engines,
        record: 'mariadb',
        window: WINDOW,
        lease: WINDOW,
        // A case that cuts the engine off expects it back, not a switch.
        failures: 1_000,
        probeTimeout: '3s',
      }),
  ),
);
