// A request's lock stays busy for longer than its handler waits.
import { compare, NONE } from '../compare.mjs';
import { listen, payController } from '../nest.mjs';

await compare('Busy over HTTP', async ({ nest, lock, open }) => {
  if (!nest) return NONE;
  let leave;
  const left = new Promise((resolve) => (leave = resolve));
  let enter;
  const entered = new Promise((resolve) => (enter = resolve));
  const pay = async function pay(id) {
    enter();
    await left;
    return id;
  };
  const type = payController(nest, pay, [nest.Get('pay/:id'), lock(60_000)]);
  const { app } = await open({ controllers: [type] });
  const url = `${await listen(app)}/pay/1`;
  const first = fetch(url);
  await entered;
  const { status, headers } = await fetch(url);
  leave();
  await first;
  const retryAfter = headers.get('retry-after');
  return `${status}${retryAfter ? `, \`Retry-After: ${retryAfter}\`` : ''}`;
});
