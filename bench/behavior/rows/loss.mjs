// Redis loses its data while a task runs under a lease of 2 s. Is the task notified, and what does the call return?
import { compare, nameOf, outcome, seconds, within } from '../compare.mjs';
import { payController } from '../nest.mjs';

const [LEASE, TASK] = [2_000, 5_000];

await compare('The lock is lost while the task runs', async ({ nest, lock, signalInMethod, open, connect, server }) => {
  const admin = connect(server.url);
  /** What a task observes that starts, loses its lock, and runs until it is notified or done. */
  const seen = async (start) => {
    let startedAt;
    let notified = 'not notified';
    const { error } = await outcome(
      start(async (signal) => {
        await admin.flushdb();
        startedAt = performance.now();
        const aborted = new Promise((resolve) => signal?.addEventListener('abort', () => resolve(true)));
        if (await within(TASK, aborted)) notified = `signal after ${seconds(performance.now() - startedAt)}`;
        return 'paid';
      }),
    );
    return `${notified}, then ${error ? `\`${nameOf(error)}\`` : 'its result'}`;
  };
  const { run } = await open();
  const parts = [`function: ${await seen((task) => run('order:1', LEASE, ({ signal }) => task(signal)))}`];
  if (nest) {
    let task;
    const pay = async function pay(id, ...more) {
      // A package that passes a signal to the method does so as an argument, or offers a function for it.
      const passed = more.find((each) => each instanceof AbortSignal);
      return task(passed ?? signalInMethod?.(), id);
    };
    const type = payController(nest, pay, [lock(LEASE)]);
    const { app } = await open({ controllers: [type] });
    const call = (given) => {
      task = given;
      return app.get(type).pay('2');
    };
    parts.push(`decorator: ${await seen(call)}`);
  }
  return parts.join('; ');
});
