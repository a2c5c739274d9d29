// A locked handler throws Nest's NotFoundException. What does the client get?
import { compare, NONE } from '../compare.mjs';
import { listen, payController } from '../nest.mjs';

await compare('A handler throws `NotFoundException`', async ({ nest, lock, open }) => {
  if (!nest) return NONE;
  const pay = async function pay(id) {
    throw new nest.NotFoundException(id);
  };
  const type = payController(nest, pay, [nest.Get('pay/:id'), lock(10_000)]);
  const { app } = await open({ controllers: [type] });
  const { status } = await fetch(`${await listen(app)}/pay/1`);
  return String(status);
});
