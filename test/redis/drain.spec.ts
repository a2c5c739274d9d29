import { fork } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { fileURLToPath } from 'node:url';
import { type CompiledLibrary, compileLibrary } from '../servers/compiled-library.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import { startBackend, until } from './seam.js';

const PROGRAM = fileURLToPath(new URL('shop-program.mjs', import.meta.url));

interface State {
  readonly event: string;
  readonly held: readonly string[];
  readonly waiting: number;
  readonly url?: string;
  readonly code?: string;
}

const ITEMS = ['1', '2', '3', '4'];
const ORDERS_EACH = 5;

/** Whether nobody listens there any more. */
function isClosed(url: string): Promise<boolean> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  return new Promise((resolve) => {
    socket.once('error', () => resolve(true));
    socket.once('connect', () => {
      socket.destroy();
      resolve(false);
    });
  });
}

describe('SIGTERM under load', () => {
  let server: RedisServer;
  let library: CompiledLibrary;
  beforeAll(async () => {
    server = await startRedisServer();
    library = await compileLibrary();
  }, 60_000);
  afterAll(async () => {
    await library.remove();
    await server.stop();
  });

  async function startShop(url: string | undefined) {
    const process = fork(PROGRAM, [library.folder, ...(url === undefined ? [] : [url])], { execArgv: [] });
    const states: State[] = [];
    process.on('message', (state) => states.push(state as State));
    await until(() => states.some(({ event }) => event === 'ready'), 'the shop is open', 60_000);
    return { process, states, url: states.find(({ event }) => event === 'ready')?.url ?? '' };
  }

  it.each([['memory'], ['redis']])(
    '%s: orders that were accepted are served, work without end is taken away, nothing is left locked, and the process ends',
    async (backend) => {
      const shop = await startShop(backend === 'redis' ? server.url : undefined);
      try {
        const orders = ITEMS.flatMap((id) =>
          Array.from({ length: ORDERS_EACH }, () =>
            fetch(`${shop.url}/items/${id}`, { method: 'POST', headers: { connection: 'close' } }),
          ),
        );
        const last = () => shop.states.at(-1);
        const locked = ITEMS.length + 1;
        const queued = ITEMS.length * (ORDERS_EACH - 1);
        await until(() => last()?.held.length === locked && last()?.waiting === queued, 'all are busy', 60_000);

        const ended = once(shop.process, 'exit');
        shop.process.kill('SIGTERM');
        await until(() => isClosed(shop.url), 'new orders are refused', 60_000);
        shop.process.send('go on');

        const answers = await Promise.all((await Promise.all(orders)).map((answer) => answer.text()));
        expect(answers).toEqual(orders.map(() => 'sold'));
        expect(await ended).toEqual([0, null]);
        const state = (event: string) => shop.states.find((each) => each.event === event);
        expect(state('background')).toMatchObject({ code: 'LOCK_LOST' });
        expect(state('exit')).toEqual({ event: 'exit', held: [], waiting: 0 });
        if (backend === 'memory') return;
        const started = await startBackend({ url: server.url });
        for (const key of [...ITEMS.map((id) => `item:${id}`), 'background']) {
          expect([key, await started.backend.inspect(key)]).toEqual([key, null]);
        }
      } finally {
        shop.process.kill('SIGKILL');
      }
    },
    240_000,
  );
});
