import type {
  AcquireRequest,
  BackendContext,
  CasStore,
  Diagnostic,
  Grant,
  LockBackend,
  LockCapabilities,
  RecordStore,
  ReleaseOptions,
  ReleaseOutcome,
  RenewOutcome,
} from '../../api/lock-provider.js';
import { probeFor, UNUSED } from '../shared/probe.js';
import { firstRow, type Run, textOf } from './connection/answer.js';
import type { ServerFacts } from './connection/dialect.js';
import { faultOf, isContention, lockErrorOf, pauseBeforeRetry } from './connection/failure.js';
import { Server } from './connection/server.js';
import { type SessionLimits, Sessions } from './connection/sessions.js';
import type { SqlSettings } from './options.js';
import { probeNamespaceOf } from './table/lock-name.js';
import { partsOf, quotedTable } from './table/lock-schema.js';
import { LockTable, withTable } from './table/lock-table.js';
import { SqlRecords } from './table/records.js';

/** A connected database. */
export interface Database {
  readonly settings: SqlSettings;
  readonly server: Server;
  /** Runs a statement in autocommit. */
  readonly run: Run;
  /** The sessions that hold locks. */
  readonly sessions: Sessions;
  readonly table: LockTable;
  /** Returns configuration problems that weaken the guarantee. */
  diagnose(): readonly Diagnostic[];
  close(): Promise<void>;
}

// How long a crashed probe's lock stays busy, in ms. A probe normally takes a few ms.
const PROBE_LEASE = 5_000;
// How long startup waits for the probe, in ms. Must exceed a crashed probe's lease.
const PROBE_WITHIN = 8_000;
const PROBE = { key: 'probe', mode: 'exclusive' } as const;
const LIMITED_PROBE = { key: 'limited-probe', mode: 'limited', limited: { limit: 1, weight: 1 } } as const;

type Probe = typeof PROBE | typeof LIMITED_PROBE;

/** One request for one key, from the first call to the release. */
export interface SqlRequest {
  /** Requests the lock. A repeated call returns what an earlier one acquired. */
  acquire(): Promise<Grant | 'busy' | 'not-asked'>;
  /** How long the database has left a waiting request unanswered, in ms. */
  readonly unansweredFor?: number;
  renew(lease: number): Promise<RenewOutcome>;
  /** Ends the request, whatever its state. */
  release(options: ReleaseOptions): Promise<ReleaseOutcome>;
}

/** The state of a request for a row lock or an advisory lock. */
export type RequestState<Held extends object> = 'asking' | Held | 'over';

/** What the request holds; undefined in any other state. */
export function heldIn<Held extends object>(state: RequestState<Held>): Held | undefined {
  return typeof state === 'object' ? state : undefined;
}

/** What a kind of lock needs of its database. */
interface Needs {
  /** The number of connections for statements. */
  readonly forStatements: number;
  /** How locks use their sessions; undefined if locks don't belong to sessions. */
  readonly forLocks?: Pick<SessionLimits, 'autocommit' | 'initSql' | 'reserved'>;
  readonly table: boolean;
}

/** For autocommit sessions. They don't hold locks, so their guard can be long. */
const AUTOCOMMIT = { guard: 600_000, lockWait: 1_000, autocommit: true, reserved: 0 };

/** The parts that all SQL backends share: connecting, request state, and errors. */
export abstract class SqlBackend<D extends Database> implements LockBackend<SqlRequest> {
  abstract readonly capabilities: LockCapabilities;
  readonly casStore: CasStore;
  readonly records: RecordStore;
  readonly commandTimeout: number;
  #database: Promise<D> | undefined;

  constructor(
    protected readonly context: BackendContext,
    protected readonly settings: SqlSettings,
  ) {
    this.commandTimeout = settings.commandTimeout;
    const inTable = <T>(what: string, work: (table: LockTable) => Promise<T>) =>
      this.operate(what, async ({ table }) => {
        await table.prepare();
        return work(table);
      });
    this.records = new SqlRecords(context, 'run', inTable);
    const epochs = new SqlRecords(context, 'failover', inTable);
    this.casStore = {
      compareAndSet: async (name, expected, next) => (await epochs.replace(name, expected, next)).value,
    };
  }

  /** Connects and acquires a probe lock, because a server on which every lock fails could otherwise pass startup. */
  async connect(): Promise<void> {
    await this.operate('The database', async (database) => {
      // An observer must not leave probe rows in the table.
      if (this.context.isObserver) return;
      const { limits } = this.capabilities;
      await Promise.all((limits ? [PROBE, LIMITED_PROBE] : [PROBE]).map((probe) => this.#probe(database, probe)));
    });
  }

  acquire(request: AcquireRequest<SqlRequest>): Promise<Grant | 'busy' | 'not-asked'> {
    const { key } = request;
    const acquire = (database: D): Promise<Grant | 'busy' | 'not-asked'> => {
      // Keep the request's state after a failure: the core retries or releases the request, and the state records which
      // statement may still reach the server.
      request.state ??= this.requestFor(database, request, this.context);
      return request.state.acquire();
    };
    return this.operate(`Lock "${key}"`, acquire, key);
  }

  unansweredFor({ state }: AcquireRequest<SqlRequest>): number {
    return state?.unansweredFor ?? 0;
  }

  async renew({ state }: AcquireRequest<SqlRequest>, lease: number): Promise<RenewOutcome> {
    try {
      return (await state?.renew(lease)) ?? 'lost';
    } catch (error) {
      return outcomeOf(error);
    }
  }

  async release(request: AcquireRequest<SqlRequest>, options: ReleaseOptions): Promise<ReleaseOutcome> {
    try {
      // Once this resolves, any earlier acquire() call has set the state.
      await this.database();
      return (await request.state?.release(options)) ?? 'lost';
    } catch (error) {
      return outcomeOf(error);
    }
  }

  async diagnose(): Promise<readonly Diagnostic[]> {
    return (await this.database()).diagnose();
  }

  async close(): Promise<void> {
    const database = await this.#database?.catch(() => undefined);
    await database?.close();
  }

  protected abstract open(): Promise<D>;
  /** @param context the context with the lock's namespace */
  protected abstract requestFor(database: D, request: AcquireRequest, context: BackendContext): SqlRequest;

  /**
   * Acquires and releases a lock that no application uses. The lock may be busy, for example when several processes
   * start together.
   */
  async #probe(database: D, probe: Probe): Promise<void> {
    const { clock, random, namespace } = this.context;
    const context = { ...this.context, namespace: probeNamespaceOf(namespace) };
    const until = clock.now() + PROBE_WITHIN;
    for (;;) {
      const request = probeFor(probe.key, random.id(), PROBE_LEASE, new AbortController().signal);
      const own = this.requestFor(database, { ...request, ...probe }, context);
      const answer = await own.acquire().catch((error: unknown) => {
        if (isContention(error)) return 'busy';
        throw error;
      });
      if (answer !== 'busy') {
        if ((await own.release(UNUSED)) === 'released') return;
        throw new Error('the test lock was acquired but could not be released');
      }
      if (clock.now() > until)
        throw new Error(
          `the test lock that each process acquires at startup was busy for ${PROBE_WITHIN / 1_000} s. Either a policy or a trigger hides rows from locking statements, or another process froze during startup`,
        );
      await pauseBeforeRetry(this.context);
    }
  }

  /**
   * Connects to a server with our own connections, because all connections in the application's pool may be waiting for
   * the locks to be renewed or released.
   *
   * @param complete adds what the kind of lock needs
   * @throws LockConfigError if the server can't guarantee mutual exclusion, or the table can't store locks
   */
  protected async connectToServer(
    needs: Needs,
    complete: (database: Database, facts: ServerFacts) => D | Promise<D>,
  ): Promise<D> {
    const { settings, context } = this;
    const { source, family, commandTimeout, sessionGuard: guard, maxConnections } = settings;
    const { forStatements, forLocks } = needs;
    const dialect = family.dialectFor(source, commandTimeout, forLocks !== undefined);
    const server = new Server(context, dialect, settings);
    const statements = new Sessions(server, { ...AUTOCOMMIT, most: forStatements });
    // The guard doesn't run during a statement, so limit the application's waits for locks.
    const lockLimits = forLocks && { guard, lockWait: guard, most: maxConnections, ...forLocks };
    const sessions = lockLimits ? new Sessions(server, lockLimits) : statements;
    const close = async () => {
      // Close in this order within one tick, because the control session must end those still in use.
      await Promise.all([sessions.close(), statements.close(), server.close()]);
    };
    try {
      const { facts } = await server.control();
      const question = family.schemaOf(quotedTable(family, settings.table));
      const schema = partsOf(settings.table).schema ?? textOf(firstRow(await statements.run(...question))?.['name']);
      const tableName = `${schema === undefined ? '' : `${schema}.`}${partsOf(settings.table).name}`;
      const insertKey = (name: string) => dialect.withoutWait(family.insertKey(name));
      const table = new LockTable(tableName, { ...family, insertKey }, statements.run, context, settings);
      if (needs.table) await table.prepare();
      const most = 1 + forStatements + (forLocks ? maxConnections : 0);
      const diagnose = () => [...server.diagnostics, ...tooMany(most, facts.maxConnections)];
      return await complete({ settings, server, sessions, run: statements.run, table, diagnose, close }, facts);
    } catch (error) {
      await close();
      throw error;
    }
  }

  /** Resolves to the database. Calls try to connect until one succeeds. */
  protected database(): Promise<D> {
    this.#database ??= this.open().catch((error: unknown) => {
      this.#database = undefined;
      throw lockErrorOf(error, 'The database', { provider: this.context.name, sent: false });
    });
    return this.#database;
  }

  /**
   * Resolves to `work`'s result. @throws LockConfigError if the database rejects it
   * @throws LockUnavailableError if the database does not respond
   */
  protected async operate<T>(what: string, work: (database: D) => Promise<T>, key?: string): Promise<T> {
    const database = await this.database();
    try {
      return await withTable(
        () => work(database),
        () => database.table.restore(),
      );
    } catch (error) {
      throw lockErrorOf(error, what, { provider: this.context.name, key });
    }
  }
}

/** If the table was dropped, its leases are gone, even if it has been recreated. */
function outcomeOf(error: unknown): 'lost' | 'unknown' {
  return faultOf(error) === 'no-table' ? 'lost' : 'unknown';
}

/** Warns if a few processes could use up all of the server's connections. */
function tooMany(most: number, offered: number): readonly Diagnostic[] {
  if (most * 4 <= offered) return [];
  const message = `One process can open ${most} connections for locks, but the server accepts only ${offered} from all clients (max_connections). Lower maxConnections, or raise the server limit.`;
  return [{ severity: 'warning', message }];
}
