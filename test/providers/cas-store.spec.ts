import type { CasStore } from '../../lib/api/lock-provider.js';
import { VersionLockBackend } from '../../lib/providers/sql/version/version-lock-backend.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { LockUnavailableError } from '../../lib/api/errors.js';
import {
  TypeOrmAdvisoryLockProvider,
  TypeOrmRowLockProvider,
  TypeOrmVersionLockProvider,
} from '../../lib/providers/typeorm/index.js';
import { lockTablesSql } from '../../lib/providers/sql/index.js';
import { casStoreOf, LockProcesses, SqlBackend, type SqlType } from '../typeorm/sql-backend.js';
import { FailoverBackend } from '../../lib/providers/failover/failover-backend.js';
import { FailoverLockProvider } from '../../lib/providers/failover/failover-lock-provider.js';
import { MemoryLockProvider } from '../../lib/providers/memory/memory-lock-provider.js';
import { LockPaths } from '../../lib/providers/zookeeper/lock-path.js';
import { ZooKeeperLockProvider } from '../../lib/providers/zookeeper/index.js';
import { ZooKeeperBackend } from '../../lib/providers/zookeeper/zookeeper-backend.js';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';
import { startZooKeeper, type ZooKeeperServer } from '../servers/zookeeper-server.mjs';
import { until } from '../until.js';
import { ZooKeeperAdmin } from '../zookeeper/zookeeper-admin.js';

const WRITERS = 6;
const WRITES = 20;

interface Process {
  readonly store: CasStore;
  readonly locks: LockManager;
  readonly wire: TcpProxy;
  stop(): Promise<unknown>;
}

/**
 * Defines the cases of every backend with a CasStore. All processes share the values.
 *
 * @param start Starts a process. An impatient one soon notices that its server is silent.
 * @param revisionOf Returns a number that grows with each write of the value.
 */
function describeCasStore(
  start: (isImpatient?: boolean) => Promise<Process>,
  revisionOf: (name: string) => Promise<number>,
): void {
  it.each([1, 2, 3])('compares and sets, and returns the resulting value: process %i', async (process) => {
    const { store } = await start();
    const name = `set-${process}`;
    expect(await store.compareAndSet(name, 'a', 'b')).toBeNull();
    expect(await store.compareAndSet(name, null, 'a')).toBe('a');
    expect(await store.compareAndSet(name, null, 'b')).toBe('a');
    expect(await store.compareAndSet(name, 'b', 'c')).toBe('a');
    expect(await store.compareAndSet(name, 'a', 'b')).toBe('b');
    const long = 'ü€😀"\\\'\u0000'.repeat(5_000);
    expect(await store.compareAndSet(name, 'b', long)).toBe(long);
    expect(await store.compareAndSet(name, null, 'c')).toBe(long);
    expect(await store.compareAndSet(name, long, '')).toBe('');
    expect(await store.compareAndSet(name, null, 'c')).toBe('');
    expect(await store.compareAndSet(name, '', 'c')).toBe('c');
  });

  it('compares byte by byte, and keeps each value under its name', async () => {
    const { store } = await start();
    for (const [name, value] of [
      ['case', 'a'],
      ['Case', 'A'],
      ['space', 'a '],
    ] as const) {
      expect(await store.compareAndSet(name, null, value)).toBe(value);
      for (const other of ['a', 'A', 'a ', 'á', ''].filter((text) => text !== value)) {
        expect(await store.compareAndSet(name, other, 'b')).toBe(value);
      }
    }
  });

  it('writers that contend from the first write on produce one history, in which every value has one successor', async () => {
    const writers = await Promise.all(Array.from({ length: WRITERS }, () => start()));
    const successors = new Map<string | null, string>();
    await Promise.all(
      writers.map(async ({ store }, writer) => {
        let known: string | null = null;
        for (let done = 0; done < WRITES;) {
          const next = `${writer}:${done}`;
          const found = await store.compareAndSet('history', known, next);
          if (found === next) {
            expect(successors.has(known)).toBe(false);
            successors.set(known, next);
            done += 1;
          }
          known = found;
        }
      }),
    );
    let length = 0;
    for (let value = successors.get(null); value !== undefined; value = successors.get(value)) length += 1;
    expect(length).toBe(WRITERS * WRITES);
  });

  it('writes even to confirm a value, and if the new value is already there', async () => {
    const { store } = await start();
    await store.compareAndSet('confirmed', null, 'a');
    const first = await revisionOf('confirmed');
    expect(await store.compareAndSet('confirmed', 'a', 'a')).toBe('a');
    const second = await revisionOf('confirmed');
    expect(second).toBeGreaterThan(first);
    expect(await store.compareAndSet('confirmed', 'gone', 'a')).toBe('a');
    const third = await revisionOf('confirmed');
    expect(third).toBeGreaterThan(second);
    expect(await store.compareAndSet('confirmed', 'gone', 'b')).toBe('a');
    expect(await revisionOf('confirmed')).toBe(third);
  });

  it('keeps values after the process that wrote them has ended', async () => {
    const { store, stop } = await start();
    await store.compareAndSet('kept', null, 'a');
    await stop();
    const next = await start();
    expect(await next.store.compareAndSet('kept', null, 'b')).toBe('a');
  });

  it('fails soon if the server does not respond, and a retry returns the outcome', async () => {
    const { store, wire } = await start(true);
    await store.compareAndSet('silent', null, 'a');
    wire.holdReplies();
    const sentAt = performance.now();
    await expect(store.compareAndSet('silent', 'a', 'b')).rejects.toBeInstanceOf(LockUnavailableError);
    // Without the timeout, the wait would not end.
    expect(performance.now() - sentAt).toBeLessThan(30_000);
    wire.passReplies();
    // The server has written the value.
    const found = () => store.compareAndSet('silent', 'a', 'b').catch(() => undefined);
    await until(async () => (await found()) !== undefined, 'the retry is answered');
    expect(await found()).toBe('b');
  }, 90_000);
}

const PROVIDERS = [TypeOrmRowLockProvider, TypeOrmVersionLockProvider, TypeOrmAdvisoryLockProvider];

describe.each<SqlType>(['mariadb', 'postgres'])('the compare-and-set store on %s', (type) => {
  const processes = new LockProcesses();
  const backend = SqlBackend.forTests(type);

  afterEach(() => processes.stop());

  async function start(Provider = PROVIDERS[0]!, options = {}): Promise<Process> {
    const provider = await backend.wired(
      (dataSource) => new Provider({ dataSource, synchronize: true, commandTimeout: '10s', ...options }),
    );
    const locks = await processes.start(provider);
    return { store: casStoreOf(locks), locks, wire: backend.wireOf(provider)!, stop: () => locks.stop() };
  }
  async function revisionOf(name: string): Promise<number> {
    const [row] = await backend.admin.query<{ expires: unknown }[]>(
      `SELECT expires FROM distributed_lock WHERE name = 'test#failover:${name}'`,
    );
    return Number(row?.expires);
  }

  let made = 0;
  // Alternates between the providers, which share the table.
  describeCasStore(
    (isImpatient) => start(PROVIDERS[(made += 1) % PROVIDERS.length], isImpatient ? { commandTimeout: '1s' } : {}),
    revisionOf,
  );

  it('keeps its values apart from job records and safe from purges', async () => {
    const { store, locks } = await start(TypeOrmVersionLockProvider);
    await store.compareAndSet('apart', null, 'a');
    const versions = locks.admin.backend(VersionLockBackend);
    expect((await versions.records.read('apart')).value).toBeNull();
    for await (const { name } of versions.records.list()) expect(name).not.toBe('apart');
    // In µs. A purge deletes rows whose time has passed.
    expect(await revisionOf('apart')).toBeGreaterThan((Date.now() + 50 * 365 * 86_400_000) * 1_000);
  });

  it("uses the lock table, which advisory locks otherwise don't need", async () => {
    const { store, locks } = await start(TypeOrmAdvisoryLockProvider, { table: 'recorded', synchronize: false });
    await (await locks.acquire('k')).release();
    await expect(store.compareAndSet('a', null, 'a')).rejects.toThrow(/the lock table does not exist.*recorded/);
    for (const statement of lockTablesSql(type === 'mariadb' ? 'mysql' : type, { table: 'recorded' })) {
      await backend.admin.query(statement);
    }
    expect(await store.compareAndSet('a', null, 'a')).toBe('a');
  });
});

describe('the compare-and-set store on ZooKeeper', () => {
  /** Long enough that a slow machine does not cost a process its session. */
  const SESSION = 20_000;
  const SHORT_SESSION = 3_000;
  const processes: (() => Promise<unknown>)[] = [];
  let server: ZooKeeperServer;
  let admin: ZooKeeperAdmin;

  beforeAll(async () => {
    server = await startZooKeeper();
    admin = await ZooKeeperAdmin.connect(server.connectString);
  }, 60_000);
  afterEach(() => Promise.all(processes.splice(0).map((stop) => stop())));
  afterAll(async () => {
    admin.close();
    await server.stop();
  });

  async function start(isImpatient = false): Promise<Process> {
    const wire = await startTcpProxy(server.port);
    const sessionTimeout = isImpatient ? SHORT_SESSION : SESSION;
    const provider = new ZooKeeperLockProvider({ connectString: `127.0.0.1:${wire.port}`, sessionTimeout });
    const locks = new LockManager({ providers: { zookeeper: provider }, namespace: 'test', shutdownGrace: 0 });
    processes.push(async () => {
      await locks.stop();
      await wire.close();
    });
    await locks.start();
    return { store: locks.admin.backend(ZooKeeperBackend).casStore, locks, wire, stop: () => locks.stop() };
  }
  describeCasStore(start, async (name) =>
    Number((await admin.stat(`${new LockPaths('', 'test').failovers}/${name}`))?.version),
  );

  it('stores the record of a failover between other providers', async () => {
    const fleet = await Promise.all(
      [1, 2].map(async () => {
        const main = new FailoverLockProvider({ providers: ['a', 'b'], casStore: 'zookeeper', window: '1s' });
        const locks = new LockManager({
          providers: {
            a: new MemoryLockProvider(),
            b: new MemoryLockProvider(),
            zookeeper: new ZooKeeperLockProvider({ connectString: server.connectString, sessionTimeout: SESSION }),
            main,
          },
          default: 'main',
          namespace: 'agreed',
          shutdownGrace: 0,
        });
        processes.push(() => locks.stop());
        await locks.start();
        return { main: locks.admin.backend(FailoverBackend), locks };
      }),
    );
    const [one, two] = fleet as [(typeof fleet)[0], (typeof fleet)[0]];
    const before = await one.locks.withLock('k', ({ fencingToken }) => fencingToken ?? 0n);
    await one.main.switchTo('b');
    await until(() => two.main.state.epoch === 2, 'the other process has switched', 60_000);
    const after = await two.locks.withLock('k', ({ fencingToken }) => fencingToken ?? 0n, { wait: '1m' });
    expect(after >> 52n).toBe(2n);
    expect(before >> 52n).toBe(1n);
  }, 150_000);
});
