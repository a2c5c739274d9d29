import { startMemcached } from '../servers/memcached-server.mjs';
import { hasRabbitmq, startRabbitmq } from '../servers/rabbitmq-server.mjs';
import { startRedisServer } from '../servers/redis-server.mjs';
import { startMariaDb, startPostgres } from '../servers/sql-server.mjs';
import { startZooKeeper } from '../servers/zookeeper-server.mjs';

interface PageServer {
  readonly address: string;
  stop(): Promise<void>;
}

/** The servers that the pages name, and how the tests start such a server. */
const NAMED: readonly { readonly address: RegExp; start(): Promise<PageServer> }[] = [
  { address: /amqp:\/\/rabbitmq:5672/g, start: async () => addressed(await startRabbitmq(), ({ url }) => url) },
  { address: /redis:\/\/[a-z]+:6379/g, start: async () => addressed(await startRedisServer(), ({ url }) => url) },
  { address: /postgres:\/\/[^']+:5432\/\w+/g, start: async () => addressed(await startPostgres(), ({ url }) => url) },
  { address: /mysql:\/\/[^']+:3306\/\w+/g, start: async () => addressed(await startMariaDb(), ({ url }) => url) },
  { address: /cache:11211/g, start: async () => addressed(await startMemcached(), (server) => server.address) },
  {
    address: /zk1:2181,zk2:2181,zk3:2181/g,
    start: async () => addressed(await startZooKeeper(), ({ connectString }) => connectString),
  },
];

function addressed<S extends { stop(): Promise<void> }>(server: S, addressOf: (server: S) => string): PageServer {
  return { address: addressOf(server), stop: () => server.stop() };
}

/** Why a block cannot run here: it names a server that the tests can do without. */
export function missingServer(code: string): string | undefined {
  return code.includes('amqp://') && !hasRabbitmq
    ? 'it needs RabbitMQ, which npm run test:all installs as root'
    : undefined;
}

const running = new Map<string, Promise<PageServer>>();

/** The code with addresses of running servers: a server of its own for each address of the pages. */
export async function withRunningServers(code: string): Promise<string> {
  let text = code;
  for (const { address, start } of NAMED) {
    for (const [name] of code.matchAll(address)) {
      if (!running.has(name)) running.set(name, start());
      text = text.replaceAll(name, (await running.get(name)!).address);
    }
  }
  // A port that the machine has free.
  return text.replaceAll('listen(3000)', 'listen(0)');
}

export async function stopServers(): Promise<void> {
  await Promise.all([...running.values()].map(async (server) => (await server).stop()));
}
