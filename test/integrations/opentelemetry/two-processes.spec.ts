import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { BasicTracerProvider, type ReadableSpan } from '@opentelemetry/sdk-trace-base';
import { Redis } from 'ioredis';
import { LockManager } from '../../../lib/core/lock-manager.js';
import { DistributedLockInstrumentation } from '../../../lib/integrations/opentelemetry/index.js';
import { RedisLockProvider } from '../../../lib/providers/redis/index.js';
import { KeyLayout } from '../../../lib/providers/redis/key-layout.js';
import { type CompiledLibrary, compileLibrary } from '../../servers/compiled-library.js';
import { type RedisServer, startRedisServer } from '../../servers/redis-server.mjs';
import { until } from '../../until.js';

interface Report {
  readonly event: string;
  readonly holder?: string;
  readonly traceId?: string;
  readonly spanId?: string;
}

let server: RedisServer;
let admin: Redis;
let library: CompiledLibrary;
let locks: LockManager;
/** The spans of this process, added when they start. */
const spans: ReadableSpan[] = [];
const instrumentation = new DistributedLockInstrumentation();
const children: ChildProcess[] = [];
const layout = new KeyLayout('lock');
const labelOf = (key: string) => layout.textOf('label', key);

beforeAll(async () => {
  server = await startRedisServer();
  admin = new Redis(server.url);
  library = await compileLibrary();
  const recorder = {
    onStart: (span: unknown) => void spans.push(span as ReadableSpan),
    onEnd: () => undefined,
    forceFlush: () => Promise.resolve(),
    shutdown: () => Promise.resolve(),
  };
  instrumentation.setTracerProvider(new BasicTracerProvider({ spanProcessors: [recorder] }));
  instrumentation.enable();
  locks = new LockManager({ providers: { main: new RedisLockProvider({ url: server.url }) }, shutdownGrace: 0 });
  await locks.start();
}, 60_000);
afterEach(() => {
  spans.length = 0;
  for (const child of children.splice(0)) child.kill('SIGKILL');
});
afterAll(async () => {
  instrumentation.disable();
  await locks.stop();
  admin.disconnect();
  await library.remove();
  await server.stop();
});

/** Starts another process that holds the lock. */
async function startHolder(key: string, { lease = 30_000, isSampled = true } = {}) {
  const args = [library.folder, server.url, key, String(lease), isSampled ? '1' : '0'];
  const child = fork(join(import.meta.dirname, 'holder-program.mjs'), args, { execArgv: [] });
  children.push(child);
  const reports: Report[] = [];
  child.on('message', (report) => reports.push(report as Report));
  const report = async (event: string) => {
    await until(() => reports.some((each) => each.event === event), `the holder reports "${event}"`);
    return reports.find((each) => each.event === event) as Report;
  };
  return { child, report, held: await report('held') };
}

it('links the acquire span to the hold span of another process', async () => {
  const { child, report, held } = await startHolder('order:42');
  const waiting = locks.acquire('order:42', { wait: '1m' });
  await until(() => (spans[0]?.links.length ?? 0) > 0, 'the acquire span is linked');
  expect(await admin.get(labelOf('order:42'))).toMatch(
    new RegExp(`^${held.holder}00-[0-9a-f]{32}-[0-9a-f]{16}-01 Orders\\.pay$`),
  );
  expect(await admin.pttl(labelOf('order:42'))).toBeGreaterThan(0);
  child.send('release');
  const { traceId, spanId } = await report('ended');
  await (await waiting).release();
  const [acquire] = spans;
  expect(acquire?.name).toBe('lock.acquire');
  expect(acquire?.links).toHaveLength(1);
  expect(acquire?.links[0]?.context).toMatchObject({ traceId, spanId, traceFlags: 1, isRemote: true });
  expect(acquire?.links[0]?.attributes).toEqual({ 'distributed_lock.link': 'holder' });
  expect(acquire?.attributes).toMatchObject({
    'distributed_lock.holder.method': 'Orders.pay',
    'distributed_lock.outcome': 'acquired',
  });
  expect(traceId).not.toBe(acquire?.spanContext().traceId);
  // The old label is left behind, but it isn't attributed to the next holder.
  expect(await admin.exists(labelOf('order:42'))).toBe(1);
});

it("records the holder's method without a link if the holder is not sampled", async () => {
  const { child } = await startHolder('order:43', { isSampled: false });
  const waiting = locks.acquire('order:43', { wait: '1m' });
  await until(
    () => spans[0]?.attributes['distributed_lock.holder.method'] !== undefined,
    "the holder's method is recorded",
  );
  child.send('release');
  await (await waiting).release();
  expect(spans[0]?.attributes['distributed_lock.holder.method']).toBe('Orders.pay');
  expect(spans[0]?.links).toEqual([]);
});

it('a process that is suspended until its lock is lost writes no label', async () => {
  const { child, report } = await startHolder('order:44', { lease: 500 });
  child.kill('SIGSTOP');
  await until(async () => (await admin.exists(layout.lockOf('order:44'))) === 0, 'the lease expired');
  await admin.del(labelOf('order:44'));
  child.kill('SIGCONT');
  await report('lost');
  // When it exits, it has processed all overdue work and received all responses.
  const over = once(child, 'disconnect');
  child.send('release');
  await over;
  expect(await admin.exists(labelOf('order:44'))).toBe(0);
});
