// A task takes 5 s under a lease of 2 s. Does another process enter after 4.5 s?
import { setTimeout as sleep } from 'node:timers/promises';
import { compare, outcome, within } from '../compare.mjs';
import { payController } from '../nest.mjs';

const [LEASE, TASK, LOOK] = [2_000, 5_000, 4_500];

await compare('A task that is longer than its lease', async ({ nest, lock, open }) => {
  const holder = await open();
  const other = await open();
  /** Starts the task, and checks whether `enter` gets in while it runs. */
  const isKept = async (start, enter) => {
    const running = start();
    await sleep(LOOK);
    const entered = new Promise((enters) => void outcome(enter(enters)));
    const isEntered = (await within(TASK - LOOK - 100, entered)) === true;
    await outcome(running);
    return isEntered ? 'another enters' : 'kept';
  };
  const enterBy = (key) => (enters) => other.run(key, LEASE, async () => enters(true));
  const task = () => holder.run('order:1', LEASE, () => sleep(TASK));
  const parts = [`function: ${await isKept(task, enterBy('order:1'))}`];
  if (holder.acquire) {
    const acquired = await holder.acquire('order:2', LEASE);
    parts.push(`\`acquire()\`: ${await isKept(() => sleep(TASK), enterBy('order:2'))}`);
    await outcome(acquired.release());
  }
  if (nest) {
    let onEnter = () => undefined;
    const pay = async function pay(id) {
      onEnter(true);
      await sleep(TASK);
      return id;
    };
    const type = payController(nest, pay, [lock(LEASE)]);
    const [one, two] = [await open({ controllers: [type] }), await open({ controllers: [type] })];
    const call = ({ app }) => app.get(type).pay('3');
    const enter = (enters) => {
      onEnter = enters;
      return call(two);
    };
    parts.push(`decorator: ${await isKept(() => call(one), enter)}`);
  }
  return parts.join('; ');
});
