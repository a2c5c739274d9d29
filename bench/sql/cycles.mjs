// SQL: acquire and release, compared with the bare driver sending the same statements in the same run. The server runs
// on core 0, the clients on core 1, and candidates take turns.
import { builds, load as loadBuild, OURS } from '../builds.mjs';
import { cpuShare, loop, loopRounds, manyKeys, oneCaller } from '../loads.mjs';
import { interleave, isQuick, lasting } from '../measure.mjs';
import { pinned } from '../pinned.mjs';
import { reportLoops } from '../report-loops.mjs';
import { about, report, versionOf } from '../results.mjs';

const BAR = 0.85;
const CALLERS = 16;
const LEASE = 10_000;
const HELD = isQuick ? 1_000 : 10_000;

/**
 * Measures the three kinds of locks on this server.
 *
 * @param server stopped at the end
 * @param database how the raw client connects, acquires, and releases, and how to read the server's version and
 * statement count
 */
export async function measureSql(server, database) {
  // Threads and processes that serve connections start later, and inherit the core.
  pinned(server);
  const managers = {};
  for (const build of builds) managers[build] = await managerOf(build, server.url);
  const acquireFrom = (provider, build) => async (key) => {
    const lease = provider === 'version' ? LEASE : undefined;
    const lock = await managers[build].acquire(key, { provider, wait: '60s', lease });
    return () => lock.release();
  };
  const connections = await Promise.all(Array.from({ length: CALLERS }, () => database.connect(server.url)));
  const [first] = connections;
  about({
    versions: { [database.name]: await database.version(first), [database.driver]: versionOf(database.driver) },
    settings:
      'One server with its defaults. The raw client sends the same statements. Each of its callers has a connection of its own, without ' +
      'a pool. It checks no answer, watches neither connection nor time, and retries nothing',
  });
  // Postgres doesn't count statements.
  const statements = database.statements && (() => database.statements(first));

  const RAW = `raw ${database.driver}`;
  const USUAL = `raw ${database.driver}, with START TRANSACTION`;
  for (const provider of Object.keys(database.raw)) {
    // The key ends with the caller's number.
    const connectionOf = (key) => connections[Number(key.split('-')[1] ?? 0)];
    const own = Object.fromEntries(builds.map((build) => [build, acquireFrom(provider, build)]));
    const candidates = { [RAW]: (key) => database.raw[provider](connectionOf(key), key), ...own };
    if (provider === 'row') candidates[USUAL] = (key) => database.usual(connectionOf(key), key);
    for (const connection of connections) await database.prepare?.(connection, provider);
    const loads = {
      'one caller': (acquire) => oneCaller(acquire, lasting(200)),
      [`${CALLERS} callers on ${CALLERS} keys`]: (acquire) => manyKeys(acquire, lasting(200), CALLERS),
    };
    // Creates the rows, also for the raw client, and runs thousands of cycles of each candidate as a warm-up for the
    // compiler.
    for (const acquire of [candidates[OURS], ...Object.values(candidates)]) {
      await oneCaller(acquire, lasting(500));
      await manyKeys(acquire, lasting(3_000), CALLERS);
    }
    for (const [callers, load] of Object.entries(loads)) {
      const rounds = await interleave(
        Object.fromEntries(Object.entries(candidates).map(([name, acquire]) => [name, () => load(acquire)])),
        { rounds: 15 },
      );
      const sent = statements && (await statementsPerCycle(statements, candidates[OURS], load));
      report({
        what: `${titleOf(provider)}, ${callers}`,
        unit: 'cycles a second',
        better: 'more',
        ours: OURS,
        base: RAW,
        bar: { atLeast: BAR, of: 'base' },
        rounds,
        notes: sent && { [OURS]: `${sent.toFixed(2)} statements a cycle` },
      });
    }
    // A row lock's grant is its transaction, so no other caller can follow under the same grant.
    if (provider !== 'row') await hotKey(provider, own);
  }
  if (statements) await heldLocks(acquireFrom('version', OURS), statements);

  for (const locks of Object.values(managers)) await locks.stop();
  await Promise.all(connections.map((connection) => connection.end()));
  await server.stop();
}

async function managerOf(build, url) {
  const { LockManager, SqlAdvisoryLockProvider, SqlRowLockProvider, SqlVersionLockProvider, namespace } =
    await loadBuild(build, 'sql');
  // Half of the connections may be shared, so that every kind of lock can use as many as the raw callers.
  const options = { url, synchronize: true, maxConnections: 2 * CALLERS };
  const locks = new LockManager({
    providers: {
      row: new SqlRowLockProvider(options),
      advisory: new SqlAdvisoryLockProvider(options),
      version: new SqlVersionLockProvider(options),
    },
    default: 'row',
    namespace,
  });
  await locks.start();
  return locks;
}

/** Waiters of one process that acquire one key again and again. */
async function hotKey(provider, own) {
  const load = (acquire) => loop(acquire, { callers: CALLERS, milliseconds: lasting(1_000) });
  const results = await interleave(
    Object.fromEntries(Object.entries(own).map(([name, acquire]) => [name, () => load(acquire)])),
    { rounds: 5 },
  );
  const what = `${titleOf(provider)}, ${CALLERS} waiters looping on one key in one process`;
  reportLoops(what, loopRounds(results), { overBaseline: { atLeast: 3 } });
}

function titleOf(provider) {
  return `${provider[0].toUpperCase()}${provider.slice(1)} lock`;
}

async function statementsPerCycle(statements, acquire, load) {
  let cycles = 0;
  const before = await statements();
  await load((key) => {
    cycles += 1;
    return acquire(key);
  });
  return ((await statements()) - before) / cycles;
}

async function heldLocks(acquire, statements) {
  const releases = [];
  let next = 0;
  await Promise.all(
    Array.from({ length: CALLERS }, async () => {
      while (next < HELD) releases.push(await acquire(`held-${next++}`));
    }),
  );
  const milliseconds = lasting(20_000);
  const before = await statements();
  const share = await cpuShare(acquire, milliseconds);
  const sent = (await statements()) - before;
  report({
    what: `${HELD.toLocaleString('en')} version locks held with leases of ${LEASE / 1_000} s and renewed`,
    unit: '% of one core',
    better: 'less',
    ours: OURS,
    bar: { atMost: 5 },
    rounds: { [OURS]: [share] },
    notes: { [OURS]: `${((sent * 1_000) / milliseconds).toFixed(1)} statements a second` },
  });
  await Promise.all(releases.map((release) => release()));
}
