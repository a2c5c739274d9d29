import { ZooKeeperLockProvider } from '../../lib/providers/zookeeper/index.js';
import { exposedBy, PASSWORDS, WORDS } from '../exposure.js';

it.each<[string, (password: string) => string, string | undefined]>([
  ['in an address', (password) => `user:${password}@127.0.0.1:1`, undefined],
  ['in an address with a scheme', (password) => `zk://user:${password}@127.0.0.1:1`, undefined],
  ['as the path of an address', (password) => `127.0.0.1:1/${password}`, undefined],
  ['in "auth"', () => '127.0.0.1:1', 'digest'],
])(
  'a password %s is shown nowhere',
  async (_, addressOf, scheme) => {
    const providers = PASSWORDS.map((password) => () => {
      const auth = scheme && { auth: { scheme, credentials: `user:${password}` } };
      return new ZooKeeperLockProvider({ connectString: addressOf(password), ...auth });
    });
    expect(await exposedBy(providers)).not.toMatch(WORDS);
  },
  60_000,
);
