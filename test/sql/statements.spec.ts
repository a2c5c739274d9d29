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

/** How many commands of a client begin in these bytes, which are whole messages: a client sends one when the last was answered. */
const commandsIn = {
  // Packets of a length, a number and a content; a command begins with number 0.
  mariadb(data: Buffer): number {
    let commands = 0;
    for (let at = 0; at + 4 <= data.length; at += 4 + data.readUIntLE(at, 3)) if (data[at + 3] === 0) commands += 1;
    return commands;
  },
  // Messages of a type and a length. A simple query is one message, a prepared one ends with Sync.
  postgres(data: Buffer): number {
    let commands = 0;
    for (let at = 0; at + 5 <= data.length; at += 1 + data.readUInt32BE(at + 1)) {
      if ('QS'.includes(String.fromCharCode(data[at]!))) commands += 1;
    }
    return commands;
  },
};

/** A wire to a server on which the commands of the clients are counted, from `fewest` on. */
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

  /** The fewest commands of three rounds: what a provider does at its start, or in the background, only adds to one. */
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
  // Looks at the row, claims it and frees it.
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

  it('a record costs one to be read, and one to be replaced', async () => {
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

  it.each(KINDS)('a %s lock that is free costs %i', async (_, statements, providerOf) => {
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

  it('20 free keys of a version lock cost one look, a claim each and one release', async () => {
    const locks = await processes.start(new SqlVersionLockProvider(options()));
    const keys = Array.from({ length: 20 }, (_, index) => `stock:${String(index).padStart(2, '0')}`);
    const cycle = () => locks.withLock(keys, () => undefined, { lease: '10m' });
    await cycle();
    expect(await wire.fewest(cycle)).toBe(1 + 20 + 1);
  });
});
