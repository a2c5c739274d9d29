// Does the package declare support for Nest 12, and does a Nest 12 application start and lock with it?
import { compare, NONE, outcome } from '../compare.mjs';
import { manifestOf } from '../packages.mjs';
import { payController } from '../nest.mjs';

await compare('Nest 12', async ({ nest, lock, open, ...each }) => {
  if (!nest) return NONE;
  const range = manifestOf(each).peerDependencies?.['@nestjs/common'];
  const type = payController(
    nest,
    async function pay(id) {
      return id;
    },
    [lock(10_000)],
  );
  const { app } = await open({ controllers: [type] });
  const { value } = await outcome(app.get(type).pay('1'));
  const declared = range ? `peer range \`${range.replaceAll('||', 'or')}\`` : 'declares no peer';
  return `${declared}; ${value ? 'works' : 'fails'}`;
});
