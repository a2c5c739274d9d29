import { CombinedLockProvider } from '../../lib/providers/combined/combined-lock-provider.js';
import { describeLockProvider } from '../../lib/provider-kit/index.js';
import { common, members, severalServersHarness } from './several-servers.js';

describeLockProvider(
  'combined, all of Redis and MariaDB',
  severalServersHarness({ capabilities: common, lease: 2_000 }, () => new CombinedLockProvider({ providers: members })),
);
