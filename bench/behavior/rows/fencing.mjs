// Two processes hold the lock one after the other, and the second one's clock is an hour behind. Does any number that
// the package returns with the lock still grow, so that a store can reject the first one's late write?
import { compare } from '../compare.mjs';

const HOUR = 3_600_000;

await compare('Fencing token', async ({ open }) => {
  const [first, second] = [await open(), await open()];
  if (!first.acquire) return 'no';
  const before = await numbers(first);
  const now = Date.now;
  Date.now = () => now() - HOUR;
  const after = await numbers(second).finally(() => (Date.now = now));
  const growing = Object.keys(after).filter((name) => after[name] > before[name]);
  return growing.length > 0 ? `\`${growing.join('`, `')}\`` : 'no';
});

/** All numbers in what the package returns with a lock. */
async function numbers({ acquire }) {
  const { grant, release } = await acquire('order:1', 2_000);
  const names = new Set([...Object.keys(grant), ...getters(grant)]);
  const found = [...names].filter((name) => ['number', 'bigint'].includes(typeof grant[name]));
  const values = Object.fromEntries(found.map((name) => [name, grant[name]]));
  await release();
  return values;
}

function getters(object) {
  const prototype = Object.getPrototypeOf(object);
  const all = Object.entries(Object.getOwnPropertyDescriptors(prototype));
  return all.filter(([, { get }]) => get).map(([name]) => name);
}
