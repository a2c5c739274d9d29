import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import type { LockProvider } from '../../lib/api/lock-provider.js';
import {
  SqlAdvisoryLockProvider,
  SqlRowLockProvider,
  SqlVersionLockProvider,
  type SqlVersionLockProviderOptions,
} from '../../lib/providers/sql/index.js';
import { contextFor } from '../backend-context.js';
import { LockProcesses, SqlBackend, type SqlType } from '../typeorm/sql-backend.js';
import { jest } from '@jest/globals';
import pg from 'pg';
import type { LockManager } from '../../lib/core/lock-manager.js';
import { createTableSql } from '../../lib/providers/sql/table/lock-schema.js';
import { type SqlServer, startPostgres } from '../servers/sql-server.mjs';

/**
 * Counts the client commands that begin in these bytes. They are whole messages, because a client waits for each reply
 * before it sends the next command.
 */
const commandsIn = {
  // A packet has a length, a number and a content. A command begins with number 0.
  mariadb(data: Buffer): number {
    let commands = 0;
    for (let at = 0; at + 4 <= data.length; at += 4 + data.readUIntLE(at, 3)) if (data[at + 3] === 0) commands += 1;
    return commands;
  },
  // A message has a type and a length. A simple query is one message. A prepared query ends with Sync.
  postgres(data: Buffer): number {
    let commands = 0;
    for (let at = 0; at + 5 <= data.length; at += 1 + data.readUInt32BE(at + 1)) {
      if ('QS'.includes(String.fromCharCode(data[at]!))) commands += 1;
    }
    return commands;
  },
};

/** A proxy to a server that counts the commands of the clients while `fewest` runs. */
class CountingWire {
  #commands: number | undefined;
  readonly #sockets = new Set<Socket>();

  private constructor(
    private readonly listener: Server,
    type: SqlType,
    port: number,
  ) {
    listener.on('connection', (client) => {
      const server = connect(port, '127.0.0.1');
      for (const socket of [client, server]) {
        this.#sockets.add(socket);
        socket.on('error', () => undefined);
      }
      client.on('data', (data: Buffer) => {
        if (this.#commands !== undefined) this.#commands += commandsIn[type](data);
        server.write(data);
      });
      server.pipe(client);
      client.on('close', () => server.destroy());
    });
  }

  static async to(type: SqlType, port: number): Promise<CountingWire> {
    const listener = createServer();
    const wire = new CountingWire(listener, type, port);
    listener.listen(0, '127.0.0.1');
    await once(listener, 'listening');
    return wire;
  }

  get port(): number {
    return (this.listener.address() as AddressInfo).port;
  }

  /**
   * Returns the lowest count of three rounds, because a provider's startup and background work only adds to one round.
   */
  async fewest(work: () => Promise<void>): Promise<number> {
    let fewest = Infinity;
    for (let round = 0; round < 3; round += 1) {
      this.#commands = 0;
      await work();
      fewest = Math.min(fewest, this.#commands);
    }
    return fewest;
  }

  close(): void {
    this.listener.close();
    for (const socket of this.#sockets) socket.destroy();
  }
}

type Options = SqlVersionLockProviderOptions;
const KINDS: readonly [kind: string, statements: number, of: (options: Options) => LockProvider][] = [
  ['row', 2, (options) => new SqlRowLockProvider(options)],
  ['advisory', 2, (options) => new SqlAdvisoryLockProvider(options)],
  // Reads the row, claims it and releases it.
  ['version', 3, (options) => new SqlVersionLockProvider(options)],
];

describe.each(['mariadb', 'postgres'] as const)('statements on the wire to %s', (type) => {
  const backend = SqlBackend.forTests(type);
  let wire: CountingWire;

  beforeAll(async () => {
    wire = await CountingWire.to(type, backend.server.port);
  });
  afterAll(() => wire.close());

  const processes = new LockProcesses();
  const options = (): Options => {
    const url = new URL(backend.server.url);
    url.port = String(wire.port);
    return { url: url.toString(), synchronize: true, commandTimeout: '10s' };
  };

  it('a record costs one statement to read and one to replace', async () => {
    const provider = new SqlVersionLockProvider(options()).createBackend(contextFor());
    await provider.connect();
    const records = provider.records!;
    try {
      await records.replace('job', null, '0');
      const runs = async () => {
        const { value } = await records.read('job');
        for (let run = 0; run < 20; run += 1)
          await records.replace('job', run === 0 ? value : String(run), String(run + 1));
      };
      expect(await wire.fewest(runs)).toBe(21);
      expect((await records.read('job')).value).toBe('20');
    } finally {
      await provider.close();
    }
  });

  it.each(KINDS)('a free %s lock costs %i statements', async (_, statements, providerOf) => {
    const provider = providerOf(options());
    const locks = await processes.start(provider);
    const lease = provider instanceof SqlVersionLockProvider ? '10m' : undefined;
    const cycle = () => locks.withLock('order', () => undefined, { lease });
    await cycle();
    const cycles = async () => {
      for (let number = 0; number < 20; number += 1) await cycle();
    };
    expect(await wire.fewest(cycles)).toBe(20 * statements);
  });

  it('20 free keys of a version lock cost one read, one claim each and one release', async () => {
    const locks = await processes.start(new SqlVersionLockProvider(options()));
    const keys = Array.from({ length: 20 }, (_, index) => `stock:${String(index).padStart(2, '0')}`);
    const cycle = () => locks.withLock(keys, () => undefined, { lease: '10m' });
    await cycle();
    expect(await wire.fewest(cycle)).toBe(1 + 20 + 1);
  });
});

/** With the driver's own record of the statements that its server has prepared. */
type Client = pg.Client & { readonly connection: { parsedStatements: Record<string, string> } };

describe('a prepared Postgres statement that no longer fits', () => {
  const processes = new LockProcesses();
  const clients: Client[] = [];
  let server: SqlServer;
  let admin: pg.Client;

  beforeAll(async () => {
    server = await startPostgres();
    admin = new pg.Client(server.url);
    await admin.connect();
    const { connect } = pg.Client.prototype;
    const connectAndKeep = function (this: Client): unknown {
      clients.push(this);
      return Reflect.apply(connect, this, []);
    };
    jest.spyOn(pg.Client.prototype, 'connect').mockImplementation(connectAndKeep);
  }, 60_000);
  // The purge at startup opens a session that may end at any moment, so the test pretends that another process purges.
  beforeEach(async () => {
    await admin.query(createTableSql('postgres', 'distributed_lock'));
    await admin.query(
      `INSERT INTO distributed_lock (name, holder, expires) VALUES ('test#purge', 'another', 9000000000000000)`,
    );
  });
  afterEach(async () => {
    clients.length = 0;
    await admin.query('DROP TABLE IF EXISTS distributed_lock');
  });
  afterAll(async () => {
    jest.restoreAllMocks();
    await admin.end();
    await server.stop();
  });

  const options = () => ({ url: server.url, synchronize: true, fencing: true, commandTimeout: '10s' });
  const kinds: readonly [kind: string, provider: () => LockProvider][] = [
    ['version', () => new SqlVersionLockProvider(options())],
    ['row', () => new SqlRowLockProvider(options())],
    ['advisory', () => new SqlAdvisoryLockProvider(options())],
  ];

  /** No attempt waits, and each is granted. Resolves to the retried failures. */
  async function useAll(locks: LockManager): Promise<unknown[]> {
    const failures: unknown[] = [];
    const note = (event: unknown) => failures.push(event);
    locks.events.on('unavailable', note);
    for (let round = 0; round < 3; round += 1) {
      await Promise.all(
        ['a', 'b', 'c', 'd', 'e'].map(async (key) => {
          const lock = await locks.acquire(key, { wait: 0 });
          expect(lock.fencingToken).toBeGreaterThan(0n);
          expect(await lock.release()).toBe('released');
        }),
      );
    }
    locks.events.off('unavailable', note);
    return failures;
  }

  const CHANGES: readonly [change: string, make: () => Promise<unknown>][] = [
    ['columns get other types', () => admin.query(ALTER)],
    ['a column is added', () => admin.query('ALTER TABLE distributed_lock ADD COLUMN note text')],
    ['the table is recreated', () => admin.query('ALTER TABLE distributed_lock RENAME TO old; ' + COPY)],
    ['the server drops all prepared statements', () => onAll((client) => client.query('DEALLOCATE ALL'))],
    ['other statements have its name', () => onAll((client) => (client.connection.parsedStatements = {}))],
  ];
  const ALTER =
    'ALTER TABLE distributed_lock ALTER COLUMN holder TYPE varchar(64), ALTER COLUMN token TYPE numeric, ' +
    'ALTER COLUMN name TYPE varchar(300) COLLATE "C", ALTER COLUMN holders TYPE varchar';
  const COPY =
    'CREATE TABLE distributed_lock (LIKE old INCLUDING ALL); INSERT INTO distributed_lock SELECT * FROM old; DROP TABLE old';
  const onAll = (work: (client: Client) => unknown) => Promise.all(clients.map(work));

  describe.each(CHANGES)('when %s', (change, make) => {
    it.each(kinds)('fails no %s lock', async (kind, provider) => {
      const locks = await processes.start(provider());
      await useAll(locks);
      // A session whose statements are gone may have lost its locks, so it ends.
      const isReset = change === 'the server drops all prepared statements' && kind !== 'version';
      // A held row lock keeps the table from changing.
      const mayHold = kind !== 'row' && !isReset;
      const held = mayHold ? await locks.acquire('held') : undefined;
      await make();
      await held?.extend();
      const failures = await useAll(locks);
      if (!isReset) expect(failures).toEqual([]);
      expect(await held?.release()).toBe(mayHold ? 'released' : undefined);
    });
  });

  it('ends a session that was reset, and its advisory locks with it', async () => {
    const [locks, others] = [await processes.start(kinds[2]![1]()), await processes.start(kinds[2]![1]())];
    const held = await locks.acquire('held');
    await onAll((client) => client.query('DISCARD ALL'));
    await (await others.acquire('held')).release();
    await (await locks.acquire('b')).release();
    expect(held.isHeld()).toBe(false);
    expect(await held.release()).toBe('lost');
  });
});
