import { type ChildProcess, fork, execFile } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import { connect } from 'node:net';
import { promisify } from 'node:util';
import { silentLogger } from '../../lib/api/logger.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { RedisLockProvider } from '../../lib/providers/redis/index.js';
import { type CompiledLibrary, compileLibrary } from '../servers/compiled-library.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import {
  granted,
  RELEASE,
  request,
  startBackend,
  type StartedBackend,
  startWithFakeClock,
  until,
  untilExpired,
  waitersAre,
} from './seam.js';

let server: RedisServer;
let library: CompiledLibrary;

beforeAll(async () => {
  [server, library] = await Promise.all([startRedisServer(), compileLibrary()]);
}, 120_000);
afterAll(async () => {
  await library.remove();
  await server.stop();
});

const programOf = (name: string) => fileURLToPath(new URL(`${name}.mjs`, import.meta.url));

interface Report {
  readonly event: string;
  readonly token?: string;
  readonly outcome?: string;
}

interface Worker {
  readonly process: ChildProcess;
  readonly reports: Report[];
  acquire(key: string, options: { readonly lease: number; readonly holdFor?: number }): void;
  report(event: string): Promise<Report>;
}

describe('real processes that die or freeze', () => {
  let admin: Redis;
  let here: StartedBackend;
  const workers: Worker[] = [];

  beforeAll(async () => {
    admin = new Redis(server.url);
    here = await startBackend({ url: server.url });
  }, 60_000);
  afterEach(() => {
    for (const worker of workers.splice(0)) worker.process.kill('SIGKILL');
  });
  afterAll(async () => {
    await here.backend.close();
    admin.disconnect();
  });

  async function startWorker(): Promise<Worker> {
    const child = fork(programOf('lock-worker'), [library.folder, server.url], { execArgv: [] });
    const reports: Report[] = [];
    child.on('message', (report) => reports.push(report as Report));
    const worker: Worker = {
      process: child,
      reports,
      acquire: (key, options) => {
        child.send({ key, ...options });
      },
      report: async (event) => {
        await until(() => reports.some((report) => report.event === event), `a worker reports "${event}"`, 60_000);
        return reports.find((report) => report.event === event) as Report;
      },
    };
    workers.push(worker);
    await worker.report('ready');
    return worker;
  }

  it("after the holder is killed, the next waiter gets the key within a second of the lease's end", async () => {
    const holder = await startWorker();
    const { backend, time } = await startWithFakeClock({ url: server.url });
    holder.acquire('k1', { lease: 5_000 });
    const { token } = await holder.report('granted');
    const waiter = backend.acquire(request('k1'));
    await waitersAre(here.backend, 'k1', 1);
    holder.process.kill('SIGKILL');
    await untilExpired(admin, 'k1');
    await time.advance(1_000);
    const grant = granted(await waiter);
    expect(grant.fencingToken).toBeGreaterThan(BigInt(token ?? 0));
    await backend.release(grant, RELEASE);
    await backend.close();
  }, 120_000);

  it('after the first waiter is killed, the release serves the next one', async () => {
    const channels = async () => (await admin.pubsub('CHANNELS')).length;
    const holder = granted(await here.backend.acquire(request('k2', { lease: 600_000 })));
    // The clock stands still, so only the release's message can grant it the lock.
    const { backend, time } = await startWithFakeClock({ url: server.url });
    const before = await channels();
    const head = await startWorker();
    head.acquire('k2', { lease: 600_000 });
    await waitersAre(here.backend, 'k2', 1);
    const next = backend.acquire(request('k2'));
    await waitersAre(here.backend, 'k2', 2);
    head.process.kill('SIGKILL');
    await until(async () => (await channels()) === before, 'the server knows that the waiter is dead');
    // Polls once more and waits for the answer, so the server counts it as live for the next 3 s.
    await time.advance(1_000);
    await backend.inspect('k2');
    await here.backend.release(holder, RELEASE);
    await backend.release(granted(await next), RELEASE);
    await backend.close();
  }, 120_000);

  it('while the first waiter is frozen, the next one waits seconds, not a lease, and the frozen one is served later', async () => {
    const holder = granted(await here.backend.acquire(request('k3', { lease: 600_000 })));
    const head = await startWorker();
    // A lease outlasts the timeout of this test.
    head.acquire('k3', { lease: 600_000, holdFor: 1 });
    await waitersAre(here.backend, 'k3', 1);
    const next = here.backend.acquire(request('k3'));
    await waitersAre(here.backend, 'k3', 2);
    head.process.kill('SIGSTOP');
    await here.backend.release(holder, RELEASE);
    const grant = granted(await next);
    head.process.kill('SIGCONT');
    await here.backend.release(grant, RELEASE);
    // The worker's first grant is stale, so it was discarded and its token never reported.
    const { token } = await head.report('granted');
    expect(BigInt(token ?? 0)).toBeGreaterThan(grant.fencingToken ?? 0n);
    expect((await head.report('released')).outcome).toBe('released');
  }, 120_000);

  it('three processes get the lock in the order in which they queued', async () => {
    const holder = granted(await here.backend.acquire(request('k4')));
    const [one, two] = [await startWorker(), await startWorker()];
    one.acquire('k4', { lease: 30_000, holdFor: 1 });
    await waitersAre(here.backend, 'k4', 1);
    two.acquire('k4', { lease: 30_000, holdFor: 1 });
    await waitersAre(here.backend, 'k4', 2);
    const last = here.backend.acquire(request('k4'));
    await waitersAre(here.backend, 'k4', 3);
    await here.backend.release(holder, RELEASE);
    const tokens = [
      BigInt((await one.report('granted')).token ?? 0),
      BigInt((await two.report('granted')).token ?? 0),
      granted(await last).fencingToken ?? 0n,
    ];
    expect(tokens).toEqual([...tokens].sort((a, b) => (a < b ? -1 : 1)));
  }, 120_000);
});

const NONE = { waits: 0, waited: 0 };

describe('the contention profile across processes', () => {
  let shop: LockManager;
  const others: ChildProcess[] = [];

  beforeEach(async () => {
    const providers = { redis: new RedisLockProvider({ url: server.url }) };
    shop = new LockManager({ providers, instance: 'shop', logger: silentLogger, shutdownGrace: 0 });
    await shop.start();
  });
  afterEach(async () => {
    for (const other of others.splice(0)) other.kill('SIGKILL');
    await shop.stop();
  });
  async function start(instance: string): Promise<ChildProcess> {
    const other = fork(programOf('contending-program'), [library.folder, server.url, instance], { execArgv: [] });
    others.push(other);
    await once(other, 'message');
    return other;
  }
  const tell = (other: ChildProcess, message: 'acquire' | 'release') => {
    const done = once(other, 'message');
    other.send(message);
    return done;
  };

  it('names the instance that held the lock for the whole wait', async () => {
    const billing = await start('billing');
    await tell(billing, 'acquire');
    await expect(shop.acquire('order:1', { wait: 200 })).rejects.toThrow('instance "billing" ');
    const granted = shop.acquire('order:1');
    await waitersAre(shop.admin, 'order:1', 1);
    await tell(billing, 'release');
    await (await granted).release();
    const [row, ...rest] = shop.admin.contention();
    expect(rest).toEqual([]);
    expect(row).toMatchObject({
      template: 'order',
      provider: 'redis',
      queue: NONE,
      unknown: NONE,
      holder: { waits: 2 },
    });
    expect(row?.holder.waited).toBeGreaterThanOrEqual(200);
    expect(row?.instances).toEqual([{ instance: 'billing', ...row?.holder }]);
  });

  it('distinguishes a queue from a single holder: the lock went to a third process meanwhile', async () => {
    const [billing, third] = [await start('billing'), await start('third')];
    await tell(billing, 'acquire');
    const next = tell(third, 'acquire');
    await waitersAre(shop.admin, 'order:1', 1);
    const refused = expect(shop.acquire('order:1', { wait: '4s' })).rejects.toThrow('it changed hands');
    await waitersAre(shop.admin, 'order:1', 2);
    // Without a gap, the holder might count as older than the caller: its time is the server's.
    await sleep(100);
    await tell(billing, 'release');
    await next;
    await refused;
    expect(shop.admin.contention()).toMatchObject([
      { template: 'order', queue: { waits: 1 }, holder: NONE, instances: [] },
    ]);
  });
});

interface State {
  readonly event: string;
  readonly held: readonly string[];
  readonly waiting: number;
  readonly url?: string;
  readonly code?: string;
}

const ITEMS = ['1', '2', '3', '4'];
const ORDERS_EACH = 5;

/** Checks that no process listens at the URL any more. */
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
  async function startShop(url: string | undefined) {
    const process = fork(programOf('shop-program'), [library.folder, ...(url === undefined ? [] : [url])], {
      execArgv: [],
    });
    const states: State[] = [];
    process.on('message', (state) => states.push(state as State));
    await until(() => states.some(({ event }) => event === 'ready'), 'the shop is open', 60_000);
    return { process, states, url: states.find(({ event }) => event === 'ready')?.url ?? '' };
  }

  it.each([['memory'], ['redis']])(
    '%s: accepted orders are served, endless work is aborted, nothing stays locked, and the process exits',
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

describe('fake timers of an application leave the clock of the core alone', () => {
  it.each([
    ['sinon', 'import', 'memory'],
    ['sinon', 'boot', 'memory'],
    ['sinon', 'held', 'memory'],
    ['sinon', 'import', 'redis'],
    ['sinon', 'boot', 'redis'],
    ['sinon', 'held', 'redis'],
    ['node', 'boot', 'memory'],
    ['node', 'held', 'memory'],
    ['node', 'boot', 'redis'],
    ['node', 'held', 'redis'],
  ])('%s timers, installed at "%s", with locks in %s', async (engine, moment, backend) => {
    const args = [
      programOf('fake-timers-program'),
      library.folder,
      engine,
      moment,
      ...(backend === 'redis' ? [server.url] : []),
    ];
    const { stdout } = await promisify(execFile)(process.execPath, args, { timeout: 15_000, killSignal: 'SIGKILL' });
    expect(JSON.parse(stdout)).toEqual({
      heldAtFirst: true,
      heldLater: true,
      busy: 'LOCK_BUSY',
      released: 'released',
      value: 'done',
    });
  });
});
