import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { type RedisServer, startRedisServer } from './redis-server.mjs';

/** Three Redis servers, a master and two replicas, and three Sentinels that monitor them. */
export interface RedisSentinels {
  readonly master: RedisServer;
  readonly replicas: readonly RedisServer[];
  readonly sentinels: readonly RedisServer[];
  /** The ioredis options that find the master. */
  readonly options: {
    readonly sentinels: { readonly host: string; readonly port: number }[];
    readonly name: string;
  };
  stop(): Promise<void>;
}

const NAME = 'locks';
const READY_WITHIN = 15_000;

export async function startRedisSentinels({ downAfter = 1_000 } = {}): Promise<RedisSentinels> {
  const args = ['--repl-diskless-sync-delay', '0'];
  const master = await startRedisServer({ args });
  const replicaOf = ['--replicaof', '127.0.0.1', String(master.port)];
  const replicas = await Promise.all([1, 2].map(() => startRedisServer({ args: [...args, ...replicaOf] })));
  await report(master, 'INFO', ['replication'], (reply) => String(reply).split('state=online').length === 3);
  const sentinel = [
    `sentinel monitor ${NAME} 127.0.0.1 ${master.port} 2`,
    `sentinel down-after-milliseconds ${NAME} ${downAfter}`,
    `sentinel failover-timeout ${NAME} 5000`,
  ].join('\n');
  const sentinels = await Promise.all([1, 2, 3].map(() => startRedisServer({ sentinel })));
  for (const each of sentinels) {
    await report(each, 'SENTINEL', ['MASTER', NAME], (reply) => {
      const fields = (reply as unknown[]).map(String);
      const field = (name: string) => fields[fields.indexOf(name) + 1];
      return field('num-other-sentinels') === '2' && field('num-slaves') === '2' && field('flags') === 'master';
    });
  }
  return {
    master,
    replicas,
    sentinels,
    options: { sentinels: sentinels.map(({ port }) => ({ host: '127.0.0.1', port })), name: NAME },
    async stop() {
      await Promise.all([...sentinels, ...replicas, master].map((server) => server.stop()));
    },
  };
}

async function report(
  server: RedisServer,
  command: string,
  args: string[],
  isReady: (reply: unknown) => boolean,
): Promise<void> {
  const client = new Redis({ port: server.port, protocol: 2 });
  try {
    for (const end = Date.now() + READY_WITHIN; !isReady(await client.call(command, args)); await sleep(20)) {
      if (Date.now() > end) throw new Error(`The Sentinels are not ready: ${command} of port ${server.port}.`);
    }
  } finally {
    client.disconnect();
  }
}
