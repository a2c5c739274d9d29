import { LockConfigError } from '../../api/errors.js';
import type { BackendContext, LockCapabilities } from '../../api/lock-provider.js';
import type { Database } from './database.js';
import type { SqlSettings } from './options.js';
import { SqlBackend } from './sql-backend.js';

/** Locks that live as long as a session of the server. */
export abstract class SessionLockBackend<D extends Database, S extends SqlSettings> extends SqlBackend<D, S> {
  readonly capabilities: LockCapabilities;

  /** @param views of the database that show such locks, for people */
  constructor(
    context: BackendContext,
    settings: S,
    shared: boolean,
    private readonly views: string,
  ) {
    super(context, settings);
    const { fencing } = settings;
    this.capabilities = { shared, fair: false, fencing, lease: 'session', minHold: false, forceRelease: false };
  }

  /** @throws LockConfigError always: the database shows sessions, rows and hashes, but no keys of a namespace */
  list(): never {
    const { name: provider } = this.context;
    throw new LockConfigError(
      `Lock provider "${provider}" cannot list its locks. They belong to sessions of the database, which does not show their keys. Look at its views: ${this.views}.`,
      { provider },
    );
  }
}
