import { LockConfigError } from '../../api/errors.js';
import type { BackendContext, LockCapabilities } from '../../api/lock-provider.js';
import type { SqlSettings } from './options.js';
import { counterNameOf } from './table/lock-name.js';

/*
 * What row and advisory locks have in common: they live as long as a session of the server.
 */

export function capabilitiesOf({ fencing }: SqlSettings, shared: boolean): LockCapabilities {
  return { shared, fair: false, fencing, lease: 'session', minHold: false, forceRelease: false };
}

/** The counter of the fencing tokens of a key; undefined without fencing. */
export function counterOf({ fencing }: SqlSettings, namespace: string, key: string): string | undefined {
  return fencing ? counterNameOf(namespace, key) : undefined;
}

/**
 * @param views of the database that show such locks, for people
 * @throws LockConfigError always: the database shows sessions, rows and hashes, but no keys of a namespace
 */
export function refuseList({ name: provider }: BackendContext, views: string): never {
  throw new LockConfigError(
    `Lock provider "${provider}" cannot list its locks. They belong to sessions of the database, which does not show their keys. Look at its views: ${views}.`,
    { provider },
  );
}
