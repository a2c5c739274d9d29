// A process that holds a lock under its own tracer until its parent tells it to release. It then reports the ended hold
// span. argv: the compiled library's folder, the Redis URL, the key, the lease in ms, and whether spans are sampled (1
// or 0).
import { AlwaysOffSampler, AlwaysOnSampler, BasicTracerProvider } from '@opentelemetry/sdk-trace-base';
import { InMemorySpanExporter, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [, , folder, url, key, lease, isSampled] = process.argv;
const load = (file) => import(pathToFileURL(join(folder, file)).href);
const { LockManager } = await load('core/lock-manager.js');
const { RedisLockProvider } = await load('providers/redis/index.js');
const { DistributedLockInstrumentation } = await load('integrations/opentelemetry/index.js');

const exporter = new InMemorySpanExporter();
const instrumentation = new DistributedLockInstrumentation();
instrumentation.setTracerProvider(
  new BasicTracerProvider({
    sampler: isSampled === '1' ? new AlwaysOnSampler() : new AlwaysOffSampler(),
    spanProcessors: [new SimpleSpanProcessor(exporter)],
  }),
);
instrumentation.enable();

const locks = new LockManager({ providers: { main: new RedisLockProvider({ url }) }, shutdownGrace: 0 });
await locks.start();
const plan = locks.plan({ lease: Number(lease) }, { method: 'Orders.pay', template: 'order:#{id}' });
const lock = await locks.acquirePlanned(plan, key);
locks.events.on('lost', () => process.send({ event: 'lost' }));
process.on('message', async () => {
  await lock.release();
  const hold = exporter
    .getFinishedSpans()
    .find(({ name }) => name === 'lock.hold')
    ?.spanContext();
  process.send({ event: 'ended', traceId: hold?.traceId, spanId: hold?.spanId });
  await locks.stop();
  process.disconnect();
});
process.send({ event: 'held', holder: lock.holder });
