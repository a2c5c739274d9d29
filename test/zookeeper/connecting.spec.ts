import { jest } from '@jest/globals';
import dns from 'node:dns';
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { systemRandom } from '../../lib/core/toolkit/random.js';
import { LockConfigError, LockUnavailableError } from '../../lib/api/errors.js';
import { startZooKeeper, type ZooKeeperServer } from '../servers/zookeeper-server.mjs';
import { granted, request, startBackend, until } from './seam.js';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ConnectionOptions } from 'node:tls';
import { freePort } from '../servers/server-process.mjs';
import { startTcpProxy } from '../servers/tcp-proxy.js';
import { silentLogger } from '../../lib/api/logger.js';

jest.setTimeout(60_000);
/** Keeps the addresses of a name in order. */
const random = { ...systemRandom(), fraction: () => 0.5 };

type Answer = readonly string[] | NodeJS.ErrnoException | 'silence';

describe('a host name in a ZooKeeper connect string', () => {
  let server: ZooKeeperServer;
  const listeners: Server[] = [];
  const sockets = new Set<Socket>();
  /** The replies of the name server, and how often each name was looked up. */
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

  /** Starts another server on ZooKeeper's port. */
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
    'covers all its addresses: the start succeeds even if every address but one %s (session of %i s)',
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
      // No warning about a single server.
      expect(await backend.diagnose()).toEqual([]);
      await backend.close();
    },
  );

  it('is resolved again after a temporary lookup failure', async () => {
    names['zk.test'] = unknown('EAI_AGAIN');
    const starting = start('zk.test');
    await until(() => (asked['zk.test'] ?? 0) >= 3, 'it was looked up three times');
    names['zk.test'] = ['127.0.0.1'];
    const { backend } = await starting;
    await backend.close();
  });

  it.each<[string, Answer]>([
    ['is unknown', unknown('ENOTFOUND')],
    ['has no addresses', []],
    ['gets no reply from the name server', 'silence'],
  ])('does not block the other hosts if it %s', async (_, answer) => {
    names['lost.test'] = answer;
    names['zk.test'] = ['127.0.0.1'];
    const { backend } = await start('lost.test,zk.test');
    granted(await backend.acquire(request('order')));
    await backend.close();
  });

  it('is looked up only once if the name server does not reply, because each lookup blocks a Node.js thread', async () => {
    names['zk.test'] = 'silence';
    await expect(start('zk.test,127.0.0.9', '1s')).rejects.toThrow(/zk\.test \(its name has not been resolved yet\)/);
    expect(asked).toEqual({ 'zk.test': 1 });
  });

  it('is resolved again after a connection is lost, since a pod may come back with another address', async () => {
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

  it('is listed in the error with every address that was tried', async () => {
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

describe('ZooKeeperLockProvider over TLS', () => {
  let folder: string;
  let server: ZooKeeperServer;
  let port: number;
  const pem = (name: string) => readFileSync(join(folder, `${name}.pem`), 'utf8');

  /** Creates a key and a self-signed certificate. */
  async function makeCertificate(name: string): Promise<void> {
    const [key, certificate] = [join(folder, `${name}-key.pem`), join(folder, `${name}.pem`)];
    const made = ['-newkey', 'rsa:2048', '-nodes', '-keyout', key, '-out', certificate];
    const says = ['-days', '1', '-subj', `/CN=${name}`, '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1'];
    execFileSync('openssl', ['req', '-x509', ...made, ...says], { stdio: 'ignore' });
    await writeFile(join(folder, `${name}-both.pem`), readFileSync(key, 'utf8') + readFileSync(certificate, 'utf8'));
  }

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'lock-tls-'));
    await makeCertificate('server');
    await makeCertificate('client');
    port = await freePort();
    server = await startZooKeeper({
      config: {
        serverCnxnFactory: 'org.apache.zookeeper.server.NettyServerCnxnFactory',
        secureClientPort: port,
        secureClientPortAddress: '127.0.0.1',
        'ssl.keyStore.location': join(folder, 'server-both.pem'),
        'ssl.keyStore.type': 'PEM',
        'ssl.trustStore.location': join(folder, 'client.pem'),
        'ssl.trustStore.type': 'PEM',
      },
    });
  }, 60_000);

  afterAll(async () => {
    await server.stop();
    await rm(folder, { recursive: true, force: true });
  });

  const connect = (tls: ConnectionOptions, host = 'localhost') =>
    startBackend({ connectString: `${host}:${port}`, sessionTimeout: 4_000, tls });
  const trusted = () => ({ ca: pem('server'), cert: pem('client'), key: pem('client-key') });
  const causeOf = async (start: Promise<unknown>) => {
    const error: unknown = await start.catch((reason: unknown) => reason);
    return ((error as Error).cause as Error).cause as NodeJS.ErrnoException;
  };

  it.each(['localhost', '127.0.0.1'])(
    "locks on a server if both sides trust each other's certificate, at %s",
    async (host) => {
      const [one, other] = [await connect(trusted(), host), await connect(trusted(), host)];
      const held = granted(await one.backend.acquire(request(host)));
      const second = other.backend.acquire(request(host));
      await until(() => other.events.some(({ type }) => type === 'waiting'), 'the other one waits');
      expect(await one.backend.release(held)).toBe('released');
      granted(await second);
    },
  );

  it('rejects a server whose certificate it does not trust, and reports the reason', async () => {
    const { cert, key } = trusted();
    expect(await causeOf(connect({ cert, key }))).toMatchObject({ code: 'DEPTH_ZERO_SELF_SIGNED_CERT' });
  });

  it('fails if the server does not trust its certificate', async () => {
    await expect(connect({ ca: pem('server') })).rejects.toThrow('cannot reach ZooKeeper');
  });

  it('rejects a server with another name', async () => {
    const tls = { ...trusted(), servername: 'elsewhere' };
    expect(await causeOf(connect(tls))).toMatchObject({ code: 'ERR_TLS_CERT_ALTNAME_INVALID' });
  });

  it('verifies the host name from the connect string, not the resolved address', async () => {
    const { lookup } = dns;
    const found = [{ address: '127.0.0.1', family: 4 }];
    const answer = (...[name, options, callback]: [string, object, (error: null, addresses: object) => void]) => {
      if (name === 'zk.test') callback(null, found);
      else lookup(name, options, callback as never);
    };
    const spy = jest.spyOn(dns, 'lookup').mockImplementation(answer as never);
    const failure = await causeOf(connect(trusted(), 'zk.test'));
    spy.mockRestore();
    expect(failure).toMatchObject({ code: 'ERR_TLS_CERT_ALTNAME_INVALID' });
    expect(failure.message).toContain('zk.test');
  });

  it.each<[string, () => ConnectionOptions]>([
    ['"tls.cert"', () => ({ ...trusted(), cert: trusted().cert.slice(0, 200) })],
    ['"tls.key"', () => ({ ...trusted(), key: trusted().key.slice(0, 200) })],
    ['"tls.key" with "tls.cert"', () => ({ ...trusted(), key: pem('server-key') })],
    [
      '"tls.cert" is invalid: ENOENT: no such file or directory, open \'/no/such/tls.pem\'',
      () => ({
        ...trusted(),
        get cert() {
          return readFileSync('/no/such/tls.pem');
        },
      }),
    ],
    ['"tls.minVersion"', () => ({ ...trusted(), minVersion: 'TLSv9' as never })],
  ])("fails the start if Node.js can't use an option, and names it: %s", async (option, tlsOf) => {
    const tls = Object.defineProperties({}, Object.getOwnPropertyDescriptors(tlsOf())) as ConnectionOptions;
    const error: unknown = await connect(tls).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(LockConfigError);
    expect((error as Error).message).toContain('Lock provider "main"');
    expect((error as Error).message).toContain(option);
    expect((error as Error).message).toContain('Check that');
  });

  it('retries with pauses if its certificate is half-written during a reconnect, and logs the reason', async () => {
    const wire = await startTcpProxy(port, { host: '127.0.0.1' });
    const warnings: string[] = [];
    let isHalfWritten = false;
    let readings = 0;
    const { ca, cert, key } = trusted();
    const tls = {
      ...{ ca, key },
      get cert() {
        readings += 1;
        return isHalfWritten ? cert.slice(0, 200) : cert;
      },
    };
    const { backend, events } = await startBackend(
      { connectString: `localhost:${wire.port}`, sessionTimeout: '30s', tls },
      { logger: { ...silentLogger, warn: (message) => warnings.push(message) } },
    );
    const held = granted(await backend.acquire(request('rotated')));
    isHalfWritten = true;
    wire.cut();
    const failed = () => warnings.some((line) => line.includes('"tls.cert"'));
    await until(failed, 'the log has the reason');
    const before = readings;
    await until(() => readings >= before + 4, 'the connection is retried');
    expect(events.map(({ type }) => type)).toEqual(['unavailable']);
    const refused: unknown = await backend.acquire(request('other')).catch((reason: unknown) => reason);
    expect((refused as Error).message).toContain('"tls.cert"');
    isHalfWritten = false;
    await until(() => events.some(({ type }) => type === 'recovered'), 'it is connected again');
    expect(warnings).toHaveLength(1);
    expect(await backend.renew(held)).toMatchObject({ validUntil: expect.any(Number) as number });
    await backend.close();
    await wire.close();
  }, 60_000);

  it('fails if the server does not use TLS, and without TLS if the server requires it', async () => {
    const options = { sessionTimeout: 4_000 };
    const unencrypted = { ...options, connectString: server.connectString, tls: trusted() };
    await expect(startBackend(unencrypted)).rejects.toThrow('cannot reach ZooKeeper');
    await expect(startBackend({ ...options, connectString: `localhost:${port}` })).rejects.toThrow(
      'cannot reach ZooKeeper',
    );
  });
});
