// The lock decorator above and below the route decorator.
import { compare, NONE } from '../compare.mjs';
import { listen, payController } from '../nest.mjs';

await compare('Decorator above / below `@Get`', async ({ nest, lock, open }) => {
  if (!nest) return NONE;
  const route = nest.Get('pay/:id');
  const statusWith = async (decorators) => {
    const pay = async function pay(id) {
      return id;
    };
    const { app } = await open({ controllers: [payController(nest, pay, decorators)] });
    const { status } = await fetch(`${await listen(app)}/pay/1`);
    return status;
  };
  return `${await statusWith([lock(10_000), route])} / ${await statusWith([route, lock(10_000)])}`;
});
