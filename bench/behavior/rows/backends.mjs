// The backends the package supports besides a single Redis server. The program starts each one and acquires a lock in
// it.
import { startRedisServer } from '../../../test/servers/redis-server.mjs';
import { compare, outcome } from '../compare.mjs';

await compare('Backends besides one Redis', async ({ backends = {}, connect, atEnd }) => {
  const works = [];
  for (const [name, openBackend] of Object.entries(backends)) {
    const servers = name === 'Redlock' ? await Promise.all([1, 2, 3].map(() => startRedisServer())) : [];
    atEnd(() => Promise.all(servers.map((server) => server.stop())));
    const opened = await openBackend({ urls: servers.map(({ url }) => url), connect, stopLater: atEnd });
    atEnd(() => opened.stop());
    const { value, error } = await outcome(opened.run('order:1', 10_000, async () => 'entered'));
    if (error) throw error;
    if (value) works.push(name);
  }
  return works.join(', ') || 'none';
});
