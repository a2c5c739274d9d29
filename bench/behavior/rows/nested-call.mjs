// A task that holds a lock calls a function that acquires the same lock.
import { compare, nameOf, outcome } from '../compare.mjs';

await compare('A nested call of the same key', async ({ open }) => {
  const { run, runInHand } = await open();
  // Connects, and loads its scripts.
  await run('order:2', 30_000, async () => undefined);
  const inner = () => run('order:1', 30_000, async () => 'entered');
  const { value, error, seconds } = await outcome(run('order:1', 30_000, inner));
  if (value) return 're-enters';
  const waits = error
    ? `waits for itself: \`${nameOf(error)}\` after ${seconds}`
    : `waits for itself for more than ${seconds}`;
  // Some offer that for a lock which the caller shows.
  const inHand =
    runInHand && (await outcome(runInHand('order:3', 30_000, () => run('order:3', 30_000, async () => true))));
  return inHand?.value ? `re-enters if passed the outer lock; otherwise ${waits}` : waits;
});
