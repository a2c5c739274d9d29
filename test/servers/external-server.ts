import type { SqlServer } from './sql-server.mjs';
import { startTcpProxy, type TcpProxy } from './tcp-proxy.js';

/**
 * The variables that name a server for the contract specs. If one is set, `npm run test:unit --
 * test/contract/redis.spec.ts` starts no server.
 */
export type ServerVariable = 'LOCK_TEST_REDIS_URL' | 'LOCK_TEST_MYSQL_URL' | 'LOCK_TEST_POSTGRES_URL';

/**
 * Returns the server named by this variable, or undefined. The server is shared, so no test may stop, freeze, or crash
 * it.
 */
export function externalServer(variable: ServerVariable): SqlServer | undefined {
  const url = process.env[variable];
  if (!url) return undefined;
  const refuse = () => {
    throw new Error(`The server of ${variable} is shared.`);
  };
  const port = Number(new URL(url).port);
  return { url, port, folder: '', pid: 0, output: '', signal: refuse, crash: refuse, stop: () => Promise.resolve() };
}

/** A proxy to a server, and the server's address through it. */
export async function wireTo(address: string): Promise<{ readonly wire: TcpProxy; readonly url: string }> {
  const url = new URL(address);
  const wire = await startTcpProxy(Number(url.port), { host: url.hostname });
  url.hostname = '127.0.0.1';
  url.port = String(wire.port);
  return { wire, url: url.toString() };
}
