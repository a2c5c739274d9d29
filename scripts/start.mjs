import { fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { build } from './build.mjs';
import { ensureInstalled, root } from './ensure-installed.mjs';
import { flashSale, ITEMS, ORDERS } from './sale.mjs';

const { values: options } = parseArgs({ options: { once: { type: 'boolean', default: false } } });

ensureInstalled();
console.log('Building …');
build();

const shop = fork(join(root, 'sample-app/dist/main.js'), { env: { ...process.env, PORT: options.once ? '0' : process.env.PORT ?? '0' } });
process.on('exit', () => shop.kill());
shop.on('exit', (code) => process.exit(code ?? 1));
const [{ url }] = await once(shop, 'message');

console.log(`\nFlash sale: ${ORDERS} concurrent orders for ${ITEMS} items over HTTP, locks in memory\n`);
const unguarded = await flashSale([url], '/unguarded/orders', 'teapot');
report('without a lock', unguarded);
const guarded = await flashSale([url], '/orders', 'lamp');
report('@DistributedLock', guarded);

const kept = guarded.sold === ITEMS && guarded.failed === 0;
console.log(kept ? `\nThe guarded endpoint sold exactly ${ITEMS}.` : '\nThe guarded endpoint did not sell what it has.');
if (options.once || !kept) process.exit(kept ? 0 : 1);

console.log(`
The shop goes on at ${url}. Try it:
  curl -X PUT  ${url}/stock/lamp -H 'content-type: application/json' -d '{"left": 3}'
  curl -X POST ${url}/orders     -H 'content-type: application/json' -d '{"item": "lamp"}'
Ctrl+C ends it.`);

function report(endpoint, { sold, soldOut, failed, seconds }) {
  const verdict = sold > ITEMS ? `OVERSOLD by ${sold - ITEMS}` : sold === ITEMS ? 'exact' : `${ITEMS - sold} too few`;
  const cells = [endpoint.padEnd(18), `sold ${String(sold).padStart(3)} of ${ITEMS}`, verdict.padEnd(16)];
  cells.push(`sold out ${String(soldOut).padStart(3)}`, `failed ${failed}`, `${seconds.toFixed(2)} s`);
  console.log(`  ${cells.join('  ')}`);
}
