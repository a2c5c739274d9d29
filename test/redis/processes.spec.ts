import { afterAll, afterEach, beforeAll, describe, expect, it } from '@jest/globals';
import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { type CompiledLibrary, compileLibrary } from '../servers/compiled-library.js';
import { type RedisServer, startRedisServer } from '../servers/redis-server.mjs';
import { granted, RELEASE, request, type StartedProvider, startProvider, until } from './seam.js';

interface Report {
  readonly event: string;
  readonly token?: string;
  readonly outcome?: string;
}

interface Worker {
  readonly process: ChildProcess;
  readonly reports: Report[];
  acquire(key: string, options: { readonly lease: number; readonly holdFor?: number }): void;
  report(event: string, within?: number): Promise<Report>;
}

describe('real processes that die or freeze', () => {
  let server: RedisServer;
  let library: CompiledLibrary;
  let here: StartedProvider;
  const workers: Worker[] = [];

  beforeAll(async () => {
    server = await startRedisServer();
    library = await compileLibrary();
    here = await startProvider({ url: server.url });
  });
  afterEach(() => {
    for (const worker of workers.splice(0)) worker.process.kill('SIGKILL');
  });
  afterAll(async () => {
    await here.provider.stop();
    await library.remove();
    await server.stop();
  });

  async function startWorker(): Promise<Worker> {
    const child = fork(fileURLToPath(new URL('lock-worker.mjs', import.meta.url)), [library.folder, server.url], {
      execArgv: [],
    });
    const reports: Report[] = [];
    child.on('message', (report) => reports.push(report as Report));
    const worker: Worker = {
      process: child,
      reports,
      acquire: (key, options) => {
        child.send({ key, ...options });
      },
      report: async (event, within = 5_000) => {
        await until(() => reports.some((report) => report.event === event), `a worker reports "${event}"`, within);
        return reports.find((report) => report.event === event) as Report;
      },
    };
    workers.push(worker);
    await worker.report('ready');
    return worker;
  }

  const waiters = async (key: string, count: number) => {
    await until(async () => (await here.provider.inspect(key))?.waiters === count, `${count} wait`);
  };

  it('a holder is killed: the next waiter has the key within lease + 1 s', async () => {
    const holder = await startWorker();
    holder.acquire('k1', { lease: 1_000 });
    const { token } = await holder.report('granted');
    const waiter = here.provider.acquire(request('k1'));
    await waiters('k1', 1);
    holder.process.kill('SIGKILL');
    const begun = performance.now();
    const grant = granted(await waiter);
    expect(performance.now() - begun).toBeLessThan(2_100);
    expect(grant.fencingToken).toBeGreaterThan(BigInt(token ?? 0));
    await here.provider.release(grant, RELEASE);
  });

  it('the waiter at the head is killed: the next one is served at once', async () => {
    const holder = granted(await here.provider.acquire(request('k2')));
    const head = await startWorker();
    head.acquire('k2', { lease: 30_000 });
    await waiters('k2', 1);
    const next = here.provider.acquire(request('k2'));
    await waiters('k2', 2);
    head.process.kill('SIGKILL');
    await until(() => head.process.signalCode === 'SIGKILL', 'it is dead');
    const begun = performance.now();
    await here.provider.release(holder, RELEASE);
    await here.provider.release(granted(await next), RELEASE);
    expect(performance.now() - begun).toBeLessThan(1_000);
  });

  it('the waiter at the head is frozen: the next one waits seconds, not a lease, and the frozen one is served later', async () => {
    const holder = granted(await here.provider.acquire(request('k3')));
    const head = await startWorker();
    head.acquire('k3', { lease: 30_000, holdFor: 1 });
    await waiters('k3', 1);
    const next = here.provider.acquire(request('k3'));
    await waiters('k3', 2);
    head.process.kill('SIGSTOP');
    const begun = performance.now();
    await here.provider.release(holder, RELEASE);
    const grant = granted(await next);
    expect(performance.now() - begun).toBeLessThan(5_000);
    head.process.kill('SIGCONT');
    await here.provider.release(grant, RELEASE);
    // Its first grant is stale: it is not used, and its token never seen.
    const { token } = await head.report('granted');
    expect(BigInt(token ?? 0)).toBeGreaterThan(grant.fencingToken ?? 0n);
    expect((await head.report('released')).outcome).toBe('released');
  });

  it('two processes and this one take turns, in the order in which they came', async () => {
    const holder = granted(await here.provider.acquire(request('k4')));
    const [one, two] = [await startWorker(), await startWorker()];
    one.acquire('k4', { lease: 30_000, holdFor: 1 });
    await waiters('k4', 1);
    two.acquire('k4', { lease: 30_000, holdFor: 1 });
    await waiters('k4', 2);
    const last = here.provider.acquire(request('k4'));
    await waiters('k4', 3);
    await here.provider.release(holder, RELEASE);
    const tokens = [
      BigInt((await one.report('granted')).token ?? 0),
      BigInt((await two.report('granted')).token ?? 0),
      granted(await last).fencingToken ?? 0n,
    ];
    expect(tokens).toEqual([...tokens].sort((a, b) => (a < b ? -1 : 1)));
  });
});
