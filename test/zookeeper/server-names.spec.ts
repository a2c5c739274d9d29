import { jest } from '@jest/globals';
import dns from 'node:dns';
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { systemRandom } from '../../lib/core/toolkit/random.js';
import { LockUnavailableError } from '../../lib/api/errors.js';
import { startZooKeeper, type ZooKeeperServer } from '../servers/zookeeper-server.mjs';
import { granted, request, startBackend, until } from './seam.js';

jest.setTimeout(60_000);
/** Keeps the addresses of a name in their order. */
const random = { ...systemRandom(), fraction: () => 0.5 };

type Answer = readonly string[] | NodeJS.ErrnoException | 'silence';

describe('A name in the connect string of ZooKeeper', () => {
  let server: ZooKeeperServer;
  const listeners: Server[] = [];
  const sockets = new Set<Socket>();
  /** The answers of the name server, and how often each name was asked for. */
  let names: Record<string, Answer>;
  let asked: Record<string, number>;

  beforeAll(async () => {
    server = await startZooKeeper();
  });
  afterAll(() => server.stop());
  beforeEach(() => {
    names = {};
    asked = {};
    const { lookup } = dns;
    const answer = (...args: Parameters<typeof lookup>) => {
      const [name, , callback] = args as unknown as [
        string,
        unknown,
        (error: Error | null, addresses: unknown) => void,
      ];
      if (!name.endsWith('.test')) {
        lookup(...args);
        return;
      }
      asked[name] = (asked[name] ?? 0) + 1;
      const known = names[name] ?? [];
      if (known === 'silence') return;
      process.nextTick(() => {
        if (known instanceof Error) {
          callback(known, []);
          return;
        }
        const found = known.map((address) => ({ address, family: address.includes(':') ? 6 : 4 }));
        callback(null, found);
      });
    };
    jest.spyOn(dns, 'lookup').mockImplementation(answer);
  });
  afterEach(async () => {
    jest.restoreAllMocks();
    for (const listener of listeners.splice(0)) listener.close();
    for (const socket of sockets) socket.destroy();
  });

  /** Another server at the port of ZooKeeper. */
  async function listen(address: string, onConnection: (socket: Socket) => void): Promise<void> {
    const listener = createServer((socket) => {
      sockets.add(socket);
      socket.on('error', () => undefined);
      onConnection(socket);
    }).listen(server.port, address);
    listeners.push(listener);
    await once(listener, 'listening');
  }
  const start = (hosts: string, sessionTimeout = '20s') =>
    startBackend(
      {
        connectString: hosts
          .split(',')
          .map((host) => `${host}:${server.port}`)
          .join(','),
        sessionTimeout,
      },
      { random },
    );
  const unknown = (code: string) => Object.assign(new Error(`getaddrinfo ${code}`), { code, syscall: 'getaddrinfo' });

  it.each([
    ['hangs', 20, () => undefined],
    ['hangs', 4, () => undefined],
    ['closes each connection', 20, (socket: Socket) => socket.destroy()],
    ['closes each connection after the greeting', 20, (socket: Socket) => socket.once('data', () => socket.destroy())],
  ])(
    'stands for all of its addresses: the start succeeds although each of them %s but one (session of %i s)',
    async (_, seconds, behave) => {
      const bad = ['127.0.0.2', '127.0.0.3', '127.0.0.4'];
      const tried: string[] = [];
      for (const address of bad) {
        await listen(address, (socket) => {
          tried.push(address);
          behave(socket);
        });
      }
      names['zk.test'] = ['::1', ...bad, '127.0.0.1'];
      const { backend } = await start('zk.test', `${seconds}s`);
      granted(await backend.acquire(request('order')));
      expect(tried).toEqual(bad);
      // It does not warn of a single server.
      expect(await backend.diagnose()).toEqual([]);
      await backend.close();
    },
  );

  it('is looked up again when it is not known for a moment', async () => {
    names['zk.test'] = unknown('EAI_AGAIN');
    const starting = start('zk.test');
    await until(() => (asked['zk.test'] ?? 0) >= 3, 'it was asked for three times');
    names['zk.test'] = ['127.0.0.1'];
    const { backend } = await starting;
    await backend.close();
  });

  it.each<[string, Answer]>([
    ['is unknown', unknown('ENOTFOUND')],
    ['has no addresses', []],
    ['is not answered by the name server', 'silence'],
  ])('that %s does not keep the others from being used', async (_, answer) => {
    names['lost.test'] = answer;
    names['zk.test'] = ['127.0.0.1'];
    const { backend } = await start('lost.test,zk.test');
    granted(await backend.acquire(request('order')));
    await backend.close();
  });

  it('that is not answered by the name server is asked for once: each lookup blocks a thread of Node', async () => {
    names['zk.test'] = 'silence';
    await expect(start('zk.test,127.0.0.9', '1s')).rejects.toThrow(/zk\.test \(its name has not been resolved yet\)/);
    expect(asked).toEqual({ 'zk.test': 1 });
  });

  it('is looked up again after a connection was lost: a pod comes back with another address', async () => {
    const wires: Socket[] = [];
    await listen('127.0.0.2', (socket) => {
      const to = connect(server.port, '127.0.0.1');
      to.on('error', () => undefined);
      sockets.add(to);
      wires.push(socket);
      socket.pipe(to).pipe(socket);
    });
    names['zk.test'] = ['127.0.0.2'];
    const { backend, events } = await start('zk.test');
    const held = granted(await backend.acquire(request('order')));
    names['zk.test'] = ['127.0.0.1'];
    for (const listener of listeners.splice(0)) listener.close();
    for (const wire of wires) wire.destroy();
    await until(() => events.some(({ type }) => type === 'recovered'), 'it is connected at the other address');
    expect(events.map(({ type }) => type)).toEqual(['unavailable', 'recovered']);
    expect(await backend.renew(held)).toMatchObject({ validUntil: expect.any(Number) as number });
    await backend.close();
  });

  it('is listed in the error with all that was tried', async () => {
    await listen('127.0.0.2', (socket) => socket.destroy());
    names['zk.test'] = ['127.0.0.2', '127.0.0.5'];
    names['lost.test'] = unknown('ENOTFOUND');
    const error: unknown = await start('zk.test,lost.test,127.0.0.6', '1s').catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(LockUnavailableError);
    const { port } = server;
    for (const tried of [
      `zk.test:${port} at 127.0.0.2 (it closed the connection without responding)`,
      `zk.test:${port} at 127.0.0.5 (connect ECONNREFUSED)`,
      `127.0.0.6:${port} (connect ECONNREFUSED)`,
      'lost.test (getaddrinfo ENOTFOUND)',
    ]) {
      expect((error as Error).message).toContain(tried);
    }
  });
});
