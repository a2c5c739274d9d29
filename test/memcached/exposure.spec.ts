import { MemcachedLockProvider } from '../../lib/providers/memcached/index.js';
import { exposedBy, PASSWORDS, WORDS } from '../exposure.js';

it.each<[string, (password: string) => string]>([
  ['in an address', (password) => `user:${password}@127.0.0.1:1`],
  ['in an address with a scheme', (password) => `memcached://user:${password}@127.0.0.1:1`],
  ['in a query', (password) => `127.0.0.1:1?password=${password}`],
])(
  'a password %s is shown nowhere',
  async (_, addressOf) => {
    const providers = PASSWORDS.map((password) => () => new MemcachedLockProvider({ server: addressOf(password) }));
    expect(await exposedBy(providers)).not.toMatch(WORDS);
  },
  60_000,
);
