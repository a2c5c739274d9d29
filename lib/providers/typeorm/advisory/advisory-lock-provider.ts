import type {
  AcquireRequest,
  Finding,
  Grant,
  Holder,
  LockCapabilities,
  LockProvider,
  ProviderContext,
  Records,
  ReleaseManner,
  ReleaseOutcome,
  RenewOutcome,
} from '../../../engine/lock-provider.js';
import type { Database } from '../database.js';
import { type DatabaseSettings, readOptions, type TypeOrmSessionLockOptions } from '../database-options.js';
import { driverErrorOf } from '../dialect.js';
import { counterNameOf } from '../lock-name.js';
import { ServerRecords } from '../records.js';
import { type LockAttempt, SessionLocks } from '../session-locks.js';
import { AdvisoryAttempt, type AdvisoryLocking } from './advisory-attempt.js';
import { type AdvisoryStatements, postgresAdvisoryLocks, userLocks } from './advisory-statements.js';
import { HoldingSessions } from './holding-sessions.js';

/** `table` and `synchronize` matter with `fencing` alone. `maxConnections` is 2 or more: one to hold on, one to wait on. */
export type TypeOrmAdvisoryLockProviderOptions = TypeOrmSessionLockOptions;

/**
 * Locks that the server keeps for a connection, without a table: `GET_LOCK` of MariaDB from 10.6 and MySQL from 8.0.1 on,
 * session-level advisory locks of Postgres from 14 on (those also shared).
 *
 * Promised: mutual exclusion while there is one server. Whoever is frozen or cut off loses the lock when the session guard has
 * passed (default 30 s) and knows it by then; a process that dies, at once. Waiters are served in the server's order.
 *
 * Locks that are free when they are asked for share one connection, of a pool of our own; whoever has to wait has one more, for
 * each key, and keeps the lock there. When the connection of several locks is lost, all of them are. What breaks it: several
 * writers (Galera, multi-primary: refused at start), a fail-over, a pause between the last check and the write: use the token
 * (`fencing`).
 */
export class TypeOrmAdvisoryLockProvider implements LockProvider {
  readonly capabilities: LockCapabilities;
  readonly records: Records;
  readonly #locks: SessionLocks;

  /** @throws LockConfigError for options that cannot work. Connects to nothing: `start` does. */
  constructor(options: TypeOrmAdvisoryLockProviderOptions) {
    const settings = readOptions('TypeOrmAdvisoryLockProvider', options, 2);
    const statements = settings.database === 'mysql' ? userLocks : postgresAdvisoryLocks;
    this.capabilities = {
      shared: statements.hasShared,
      fair: false,
      fencing: settings.fencing,
      lease: 'session',
      minHold: false,
      forceRelease: false,
      queue: 'engine',
    };
    this.#locks = new SessionLocks(settings, {
      needsTable: settings.fencing,
      prepare: (database, context) => prepare(statements, settings, database, context),
    });
    this.records = new ServerRecords(settings, () => this.#locks.database());
  }

  start(context: ProviderContext): Promise<void> {
    return this.#locks.start(context);
  }

  acquire(request: AcquireRequest): Promise<Grant | 'busy'> {
    return this.#locks.acquire(request);
  }

  renew(grant: Grant): Promise<RenewOutcome> {
    return this.#locks.renew(grant);
  }

  release(holder: Holder, manner: ReleaseManner): Promise<ReleaseOutcome> {
    return this.#locks.release(holder, manner);
  }

  check(): Promise<readonly Finding[]> {
    return this.#locks.check();
  }

  stop(): Promise<void> {
    return this.#locks.stop();
  }
}

async function prepare(
  statements: AdvisoryStatements,
  { fencing, terms }: DatabaseSettings,
  { dialect, sessions, table }: Database,
  context: ProviderContext,
): Promise<(request: AcquireRequest) => LockAttempt> {
  const { clock, namespace } = context;
  const scope = await statements.scopeOf(sessions.run);
  const locking: AdvisoryLocking = {
    clock,
    dialect,
    table,
    // Half of the connections at most are shared, so that those who wait find some.
    sessions: new HoldingSessions(sessions, statements, Math.floor(terms.maxConnections / 2)),
    guard: terms.guard,
    nameOf: (key) => statements.nameOf(scope, namespace, key),
    counterOf: (key) => (fencing ? counterNameOf(namespace, key) : undefined),
    onWaiting: (holder) => {
      context.emit({ type: 'waiting', holder });
    },
    onLost: (holder, cause) => {
      context.emit({ type: 'lost', holder, cause: driverErrorOf(cause) });
    },
  };
  return (request) => new AdvisoryAttempt(locking, request);
}
