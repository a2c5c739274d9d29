import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createClient } from 'redis';
import { createClient as createClient5 } from 'redis5';
import { LockUnavailableError } from '../../lib/api/errors.js';
import type { RedisLockProviderOptions } from '../../lib/providers/redis/index.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import { freePort } from '../servers/server-process.mjs';
import { backendOf, granted, RELEASE, request, startBackend, untilWaiting } from './seam.js';

type Connection = (port: number, ca: string | undefined) => RedisLockProviderOptions;

const LIBRARIES: readonly [string, Connection][] = [
  ['ioredis', (port, ca) => ({ options: { host: 'localhost', port, tls: { ca } } })],
  ['node-redis', (port, ca) => ({ client: createClient({ socket: { host: 'localhost', port, tls: true, ca } }) })],
  ['node-redis 5', (port, ca) => ({ client: createClient5({ socket: { host: 'localhost', port, tls: true, ca } }) })],
];

describe.each(LIBRARIES)('TLS, by %s', (_, connection) => {
  let folder: string;
  let server: RedisServer;
  let port: number;
  let ca: string;

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'lock-redis-tls-'));
    const [key, certificate] = [join(folder, 'key.pem'), join(folder, 'certificate.pem')];
    const made = ['-newkey', 'rsa:2048', '-nodes', '-keyout', key, '-out', certificate];
    const says = ['-days', '1', '-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost'];
    execFileSync('openssl', ['req', '-x509', ...made, ...says], { stdio: 'ignore' });
    ca = readFileSync(certificate, 'utf8');
    port = await freePort();
    const files = ['--tls-cert-file', certificate, '--tls-key-file', key, '--tls-ca-cert-file', certificate];
    server = await startRedisServer({ args: ['--tls-port', String(port), '--tls-auth-clients', 'no', ...files] });
  }, 60_000);
  afterAll(async () => {
    await server.stop();
    await rm(folder, { recursive: true, force: true });
  });

  it('a lock is handed from one process to another', async () => {
    const [one, other] = [await startBackend(connection(port, ca)), await startBackend(connection(port, ca))];
    const held = granted(await one.backend.acquire(request('k')));
    const answer = other.backend.acquire(request('k', { wait: 60_000 }));
    await untilWaiting(other);
    expect(await one.backend.release(held, RELEASE)).toBe('released');
    expect(granted(await answer).fencingToken).toBeGreaterThan(held.fencingToken ?? 0n);
    await Promise.all([one.backend.close(), other.backend.close()]);
  });

  it('a server whose certificate is not known cannot be reached, and the error names the certificate', async () => {
    const backend = backendOf(connection(port, undefined));
    const error: unknown = await backend.connect().catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(LockUnavailableError);
    expect((error as { cause: { code: string } }).cause.code).toBe('DEPTH_ZERO_SELF_SIGNED_CERT');
    await backend.close();
  });
});
