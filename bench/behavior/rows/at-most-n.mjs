// Three callers compete for a semaphore of two, if the package has one.
import { compare, hold, within } from '../compare.mjs';

await compare('At most two at a time', async ({ exported, openSemaphore, server, connect, atEnd }) => {
  if (!openSemaphore) return exported.some((name) => /semaphore/i.test(name)) ? 'not tried' : 'no';
  const semaphore = await openSemaphore({ url: server.url, connect }, 2);
  atEnd(() => semaphore.stop());
  const holders = [await hold(semaphore, 'orders', 10_000), await hold(semaphore, 'orders', 10_000)];
  let third = 'waits';
  const waiting = semaphore.run('orders', 10_000, async () => (third = 'enters'));
  await within(500, waiting);
  const seen = third;
  for (const holder of holders) await holder.leave();
  await waiting;
  return `yes, the third ${seen}`;
});
