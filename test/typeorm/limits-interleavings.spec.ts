import { SeenHolders } from '../../lib/providers/shared/seen-holders.js';
import fc from 'fast-check';
import { DataSource } from 'typeorm';
import type { AcquireRequest, Grant } from '../../lib/api/lock-provider.js';
import type { LimitShare } from '../../lib/api/lock-mode.js';
import { systemRandom } from '../../lib/core/toolkit/random.js';
import { SeededRandom } from '../../lib/provider-kit/seeded-random.js';
import type { Run } from '../../lib/providers/sql/connection/answer.js';
import { FAMILIES } from '../../lib/providers/sql/connection/databases.js';
import type { Family } from '../../lib/providers/sql/connection/dialect.js';
import type { SqlSettings } from '../../lib/providers/sql/options.js';
import { LeaseTable } from '../../lib/providers/sql/version/lease-table.js';
import { LimitedLeases } from '../../lib/providers/sql/version/limited-leases.js';
import { type LeaseDatabase, VersionRequest } from '../../lib/providers/sql/version/version-request.js';
import { contextFor } from '../backend-context.js';
import { exploration } from '../exploration.js';
import { requestFor } from '../direct-backend.js';
import { kindOf } from './observed-driver.js';

const unseen = new SeenHolders({ id: '0123456789ab', name: 'host:1' }, (id) => Promise.resolve(id));

const RUNS = exploration(60, 3_000);
const ACTORS = 3;
const LEASE = 600_000;
const TABLE = 'distributed_lock';
/** How many reservations all runs sent. */
let reservations = 0;

const dataSource = new DataSource({ type: 'sqljs' });
beforeAll(async () => {
  await dataSource.initialize();
});
afterAll(() => dataSource.destroy());

/**
 * The same statements in SQLite 3.35 and later, which runs in this process: no server explores as many interleavings
 * per second.
 */
const SQLITE: Family = {
  ...FAMILIES.postgres,
  value: FAMILIES.mysql.value,
  isAmong: FAMILIES.mysql.isAmong,
  list: FAMILIES.mysql.list,
  now: `(CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000)`,
  insertKey: (table) =>
    `INSERT INTO ${table} (name, expires, label) VALUES (?, ${SQLITE.now}, ?) ON CONFLICT (name) DO NOTHING`,
  changed: (answer) => (answer as { readonly changes: number }).changes,
  positionOf: FAMILIES.mysql.positionOf,
  asText: (number) => `CAST(CAST(${number} AS INTEGER) AS TEXT)`,
};
const leaseTable = (run: Run) => new LeaseTable(TABLE, SQLITE, run, contextFor(), { maxConnections: 1 } as SqlSettings);

/** Lets other statements go first. */
const turns = async (count: number) => {
  for (let turn = 0; turn < count; turn += 1) await new Promise((resolve) => setImmediate(resolve));
};

/**
 * A real database behind a connection that reorders statements and loses some replies. Some of the statements without a
 * reply arrive later.
 */
function faulty(random: SeededRandom, late: Promise<unknown>[]): LeaseDatabase {
  const execute: Run = async (sql, parameters = []) => {
    const values = parameters.map((value) => (typeof value === 'bigint' ? Number(value) : value));
    const rows: unknown = await dataSource.query(sql.replaceAll('GREATEST(', 'MAX('), values);
    if (sql.startsWith('SELECT') || sql.endsWith('RETURNING token')) return rows;
    const [{ changes }] = await dataSource.query<[{ changes: number }]>('SELECT changes() AS changes');
    return { changes };
  };
  let last: Promise<unknown> = Promise.resolve();
  const inTurn: Run = (sql, parameters) => {
    const answer = last.then(() => execute(sql, parameters));
    last = answer.catch(() => undefined);
    return answer;
  };
  const run: Run = async (sql, parameters) => {
    if (kindOf(sql) === 'limited reservation') reservations += 1;
    await turns(Math.floor(random.fraction() * 6));
    const chance = random.fraction();
    if (chance < 0.1) {
      late.push(turns(Math.floor(random.fraction() * 40)).then(() => inTurn(sql, parameters)));
      throw new Error('No reply, and the statement arrives later.');
    }
    const answer = await inTurn(sql, parameters);
    if (chance < 0.15) throw new Error('The statement arrived, and its reply was lost.');
    await turns(Math.floor(random.fraction() * 6));
    return answer;
  };
  const leases = leaseTable(run);
  const limited = new LimitedLeases(leases);
  return { run, table: leases, leases, limited } as unknown as LeaseDatabase;
}

/** Tracks which requests believe that they hold the key. */
class Judge {
  readonly #holds = new Map<string, LimitShare | undefined>();
  #lastToken = 0n;

  enter({ id, limited }: AcquireRequest, { fencingToken }: Grant): void {
    this.#holds.set(id, limited);
    const all = [...this.#holds.values()];
    const limits = all.map((terms) => terms?.limit ?? 0);
    const used = all.reduce((sum, terms) => sum + (terms?.weight ?? 1), 0);
    if (all.length > 1) expect(used).toBeLessThanOrEqual(Math.min(...limits));
    expect(fencingToken).not.toBe(this.#lastToken);
    this.#lastToken = fencingToken ?? 0n;
  }

  leave({ id }: AcquireRequest): void {
    this.#holds.delete(id);
  }
}

async function play(seed: number): Promise<number> {
  const random = new SeededRandom(seed);
  const late: Promise<unknown>[] = [];
  const database = faulty(random, late);
  const context = contextFor([], { namespace: `run${seed}` });
  const judge = new Judge();
  let grants = 0;

  /** Acts like the core: retries with the same id, and releases whatever the result. */
  const act = async (): Promise<void> => {
    const limited = random.fraction() < 0.85 ? { limit: random.pick([2, 3]), weight: random.pick([1, 2]) } : undefined;
    const mode = limited ? 'limited' : 'exclusive';
    const request = requestFor('k', systemRandom().id(), { mode, limited, lease: LEASE, wait: 0 });
    const attempt = new VersionRequest(context, database, request, unseen);
    const asks = random.pick([1, 1, 3]);
    let answer: Awaited<ReturnType<VersionRequest['acquire']>> | undefined;
    for (let ask = 0; ask < asks && answer === undefined; ask += 1) {
      answer = await attempt.acquire().catch(() => undefined);
    }
    if (typeof answer === 'string') return;
    if (answer) {
      grants += 1;
      judge.enter(request, answer);
      await turns(Math.floor(random.fraction() * 20));
      expect(await attempt.renew(LEASE).catch(() => 'unknown')).not.toBe('lost');
      judge.leave(request);
    }
    while ((await attempt.release({ keepFor: 0, failed: false }).catch(() => 'unknown' as const)) === 'unknown');
  };
  const actor = async () => {
    for (let round = 0; round < 8; round += 1) {
      await act();
      await turns(Math.floor(random.fraction() * 40));
    }
  };
  await Promise.all(Array.from({ length: ACTORS }, actor));
  await Promise.all(late);
  // Statements that arrived late left no holder in the row.
  const run: Run = (sql, values) => dataSource.query(sql, [...(values ?? [])]);
  const table = leaseTable(run);
  expect((await table.read(`run${seed}#lease:k`))?.holds).toEqual([]);
  return grants;
}

it(`statements that overtake each other or get no reply never admit more than the limit, and leave no holder in the row (${RUNS} runs; more in npm run test:long)`, async () => {
  await dataSource.query(
    `CREATE TABLE ${TABLE} (name TEXT NOT NULL PRIMARY KEY, token INTEGER NOT NULL DEFAULT 0, holder TEXT, ` +
      `expires INTEGER NOT NULL DEFAULT 0, label TEXT, holders TEXT) WITHOUT ROWID`,
  );
  let grants = 0;
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 1 }), async (seed) => {
      grants += await play(seed);
    }),
    { numRuns: RUNS, ...(process.env.LOCK_SEED !== undefined && { seed: Number(process.env.LOCK_SEED) }) },
  );
  expect(grants).toBeGreaterThan(RUNS);
  // Otherwise the runs would show nothing about reservations.
  expect(reservations).toBeGreaterThan(RUNS / 6);
}, 3_600_000);
