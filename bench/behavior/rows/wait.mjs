// A lock stays busy. How long does a caller wait by default, and what does it get?
import { compare, hold, nameOf, outcome } from '../compare.mjs';

await compare('A busy lock: a caller gives up after', async ({ open }) => {
  const holder = await hold(await open(), 'order:1', 60_000);
  const caller = await open();
  // Connect, and load the package's scripts.
  await caller.run('order:2', 60_000, async () => undefined);
  const { error, seconds } = await outcome(caller.run('order:1', 60_000, () => undefined));
  await holder.leave();
  return error ? `${seconds}, \`${nameOf(error)}\`` : `more than ${seconds}`;
});
