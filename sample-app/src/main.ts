import 'reflect-metadata';
import { NestFactory } from '@nestjs/core';
import { AppModule } from './app.module.js';
import type { Backend } from './backends/backend.js';

const { SHOP_LEASE: lease, SHOP_MAX_HOLD: maxHold } = process.env;
const app = await NestFactory.create(AppModule.on(await backend(), { lease, maxHold }), { logger: ['error', 'warn'] });
app.enableShutdownHooks();
await app.listen(Number(process.env['PORT'] ?? 3000), '127.0.0.1');
// If a script started this process, send it the address, and exit with it.
process.on('disconnect', () => process.exit());
process.send?.({ url: await app.getUrl() });

/** The client libraries of other backends need not be installed. */
async function backend(): Promise<Backend> {
  const { SHOP_BACKEND: name = 'memory' } = process.env;
  const {
    REDIS_URL: redisUrl = 'redis://127.0.0.1:6379',
    MYSQL_URL: mysqlUrl = 'mysql://root@127.0.0.1:3306/test',
    POSTGRES_URL: postgresUrl = 'postgres://postgres@127.0.0.1:5432/postgres',
    ZOOKEEPER: connectString = '127.0.0.1:2181',
  } = process.env;
  switch (name) {
    case 'memory':
      return (await import('./backends/memory.js')).memory();
    case 'redis':
      return (await import('./backends/redis.js')).redis(redisUrl);
    case 'mysql':
      return (await import('./backends/mysql.js')).mysql(mysqlUrl, lease);
    case 'postgres':
      return (await import('./backends/postgres.js')).postgres(postgresUrl, lease);
    case 'zookeeper':
      return (await import('./backends/zookeeper.js')).zookeeper(connectString, lease);
    case 'failover':
      return (await import('./backends/failover.js')).failover(redisUrl, mysqlUrl);
    default:
      throw new Error(`SHOP_BACKEND is "${name}", but must be memory, redis, mysql, postgres, zookeeper or failover.`);
  }
}
