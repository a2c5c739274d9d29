import type { LockProvider } from '../lib/api/lock-provider.js';
import { LockManager } from '../lib/core/lock-manager.js';
import { textOf } from '../lib/provider-kit/secrets.js';

/** Passwords with each character that means something in an address, as people write them there. Each has both words. */
export const PASSWORDS = [']', '/', '?', '#', '@', ':', '%', '&', ' ', "'", '[', '\\', '%5D', '%40'].map(
  (characters) => `hunter${characters}tiger`,
);
export const WORDS = /hunter|tiger/;

/** Everything that a log could show of applications with these providers, which cannot reach their server. */
export async function exposedBy(providers: readonly (() => LockProvider)[]): Promise<string> {
  const applications = providers.flatMap((make) => [true, false].map((failFast) => exposedByOne(make, failFast)));
  return (await Promise.all(applications)).join('\n');
}

async function exposedByOne(make: () => LockProvider, failFast: boolean): Promise<string> {
  const seen: string[] = [];
  const see = (something: unknown) => {
    seen.push(textOf(something));
  };
  const logger = { debug: see, warn: see, error: see };
  try {
    const locks = new LockManager({ providers: { main: make() }, logger, failFast, shutdownGrace: 0 });
    locks.events.on('unavailable', see);
    await locks.start().catch(see);
    await locks.withLock('order', () => 'done', { wait: 0 }).catch(see);
    await locks.stop();
    see([locks, locks.admin.backend(Object as never)]);
  } catch (error) {
    see(error);
  }
  return seen.join('\n');
}
