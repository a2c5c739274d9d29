import { LockConfigError, LockUnavailableError } from '../../lib/api/errors.js';
import type { BackendContext, LockBackend, LockProvider } from '../../lib/api/lock-provider.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { CombinedLockProvider } from '../../lib/providers/combined/combined-lock-provider.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { until } from '../until.js';

/** In memory, with other parts of the backend. */
function providerWith(change: (backend: LockBackend) => Partial<LockBackend>): LockProvider {
  return {
    createBackend(context: BackendContext) {
      const backend: LockBackend = new MemoryLockProvider().createBackend(context);
      return Object.assign(backend, change(backend));
    },
  };
}

function managerOf(providers: Record<string, LockProvider>, failFast = true) {
  const log: string[] = [];
  const say = (line: string) => void log.push(line);
  const logger = { debug: () => undefined, warn: say, error: say };
  return { log, locks: new LockManager({ providers, default: Object.keys(providers)[0], failFast, logger }) };
}

it('the diagnostics of a server come before the first write, which may end the connection', async () => {
  const asked: string[] = [];
  const provider = providerWith(() => ({
    register: () => Promise.resolve(void asked.push('register')),
    diagnose: () => Promise.resolve([]).finally(() => asked.push('diagnose')),
  }));
  const { locks } = managerOf({ provider });
  await locks.start();
  await until(() => asked.length === 2, 'both were asked');
  expect(asked).toEqual(['diagnose', 'register']);
  await locks.stop();
});

it('a refusal fails the start also without failFast, unless another provider is built on it', async () => {
  const refused = new LockConfigError('The server refuses the login.', { refused: true });
  const provider = providerWith(() => ({ connect: () => Promise.reject(refused) }));
  await expect(managerOf({ provider }, false).locks.start()).rejects.toBe(refused);
  const both = new CombinedLockProvider({ providers: ['provider', 'memory'] });
  const { locks, log } = managerOf({ both, provider, memory: new MemoryLockProvider() }, false);
  await locks.start();
  expect(log).toContainEqual('Lock provider "provider" does not answer: The server refuses the login.');
  await locks.stop();
  const mistake = new LockConfigError('A mistake in the options.');
  const wrong = providerWith(() => ({ connect: () => Promise.reject(mistake) }));
  await expect(
    managerOf({ both, provider: wrong, memory: new MemoryLockProvider() }, false).locks.start(),
  ).rejects.toBe(mistake);
  const down = providerWith(() => ({ connect: () => Promise.reject(new LockUnavailableError('Down.')) }));
  await expect(managerOf({ provider: down }).locks.start()).rejects.toThrow('Down.');
});
