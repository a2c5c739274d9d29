import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { type CompiledLibrary, compileLibrary } from '../servers/compiled-library.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';

/** Observes every entry and exit in one place. */
class Observer {
  readonly #inside = new Set<object>();
  readonly #server: Server;
  /** How often a connection entered while another was inside. */
  collisions = 0;
  /** How often each connection entered. */
  readonly visits = new Map<object, number>();

  constructor() {
    this.#server = createServer((socket) => {
      socket.on('error', () => {});
      socket.on('data', (data) => {
        if (String(data).startsWith('in')) {
          if (this.#inside.size > 0) this.collisions += 1;
          this.#inside.add(socket);
          this.visits.set(socket, (this.visits.get(socket) ?? 0) + 1);
        } else this.#inside.delete(socket);
        socket.write('.');
      });
      socket.on('close', () => this.#inside.delete(socket));
    });
  }

  async listen(): Promise<number> {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    return (this.#server.address() as AddressInfo).port;
  }

  get total(): number {
    return [...this.visits.values()].reduce((sum, count) => sum + count, 0);
  }

  close(): void {
    this.#server.close();
  }
}

describe('migration between providers', () => {
  let [a, b]: RedisServer[] = [];
  let library: CompiledLibrary;

  beforeAll(async () => {
    [a, b, library] = await Promise.all([startRedisServer(), startRedisServer(), compileLibrary()]);
  });
  afterAll(() => Promise.all([a?.stop(), b?.stop(), library.remove()]));

  async function stage() {
    const observer = new Observer();
    const port = await observer.listen();
    const start = async (generation: 'a' | 'a+b' | 'b'): Promise<ChildProcess> => {
      const file = fileURLToPath(new URL('migration-worker.mjs', import.meta.url));
      const child = fork(file, [library.folder, String(port), a!.url, b!.url, generation], { execArgv: [] });
      await once(child, 'message');
      return child;
    };
    const stop = async (child: ChildProcess) => {
      child.send('stop');
      await once(child, 'exit');
    };
    /** Lets the running instances work for a while. */
    const work = async () => {
      for (const until = observer.total + 100; observer.total < until;) await sleep(10);
    };
    return { observer, start, stop, work };
  }

  it('keeps mutual exclusion over two rolling deployments: A with A+B, then A+B with B', async () => {
    const { observer, start, stop, work } = await stage();
    let fleet = [await start('a'), await start('a')];
    for (const generation of ['a+b', 'b'] as const) {
      const next: ChildProcess[] = [];
      for (const old of fleet) {
        await work();
        next.push(await start(generation));
        await work();
        await stop(old);
      }
      fleet = next;
    }
    await work();
    await Promise.all(fleet.map(stop));
    observer.close();
    expect(observer.visits.size).toBe(6);
    expect(observer.total).toBeGreaterThanOrEqual(900);
    expect(observer.collisions).toBe(0);
  }, 300_000);

  it('loses mutual exclusion with a single deployment of A with B, and the observer detects it', async () => {
    const { observer, start, stop, work } = await stage();
    const fleet = [await start('a'), await start('b')];
    for (const until = Date.now() + 20_000; observer.collisions === 0 && Date.now() < until;) await work();
    await Promise.all(fleet.map(stop));
    observer.close();
    expect(observer.collisions).toBeGreaterThan(0);
  }, 300_000);
});
