// A task that holds a lock calls a function that acquires the same lock.
import { compare, nameOf, outcome } from '../compare.mjs';

await compare('A nested call of the same key', async ({ open }) => {
  const { run, runPassingLock } = await open();
  // Connect, and load the package's scripts.
  await run('order:2', 30_000, async () => undefined);
  const inner = () => run('order:1', 30_000, async () => 'entered');
  const { value, error, seconds } = await outcome(run('order:1', 30_000, inner));
  if (value) return 're-enters';
  const waits = error
    ? `waits for itself: \`${nameOf(error)}\` after ${seconds}`
    : `waits for itself for more than ${seconds}`;
  // Some packages support it for a lock that the caller passes.
  const passed =
    runPassingLock &&
    (await outcome(runPassingLock('order:3', 30_000, () => run('order:3', 30_000, async () => true))));
  return passed?.value ? `re-enters if passed the outer lock; otherwise ${waits}` : waits;
});
