import { CombinedProvider } from '../../lib/providers/combined/combined-provider.js';
import { describeLockProvider } from '../../lib/testing/index.js';
import { common, engines, severalEnginesHarness } from './several-engines.js';

describeLockProvider(
  'combined, all of Redis and MariaDB',
  severalEnginesHarness(common, 2_000, () => new CombinedProvider({ engines, quorum: 'all' })),
);
