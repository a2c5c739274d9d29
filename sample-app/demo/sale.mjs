import { Agent, request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Runs a flash sale over HTTP, with orders spread over the instances of the shop.
 *
 * @param {string[]} urls the addresses of the instances
 * @param {string} path the endpoint that takes the orders
 * @param {object} sale
 * @param {string} sale.item the item for sale
 * @param {number} sale.items the stock
 * @param {number} sale.orders how many customers want one
 * @param {number} [sale.over] the time over which the orders are spread, in ms. Default: all at the same time
 * @param {number} [sale.atOnce] how many orders arrive together. Default 1
 * @param {number} [sale.paymentTakes] how long the bank takes for each, in ms
 * @param {(outcome: 'sold' | 'soldOut' | 'failed', sold: number) => void} [sale.onAnswer] called for each response
 * @returns {Promise<{ sold: number, soldOut: number, failed: number, seconds: number, stoodStill: number }>} with the
 * longest time without a response, in seconds
 */
export async function flashSale(
  urls,
  path,
  { item, items, orders, over = 0, atOnce = 1, paymentTakes, onAnswer = () => undefined },
) {
  // Each order has its own connection, like a real customer.
  const agent = new Agent({ keepAlive: false, maxSockets: Infinity });
  await call(agent, 'PUT', `${urls[0]}/stock/${item}`, { left: items });
  const startedAt = performance.now();
  const answers = { sold: 0, soldOut: 0, failed: 0 };
  let [answeredAt, stoodStill] = [startedAt, 0];
  const order = async (_, number) => {
    if (over > 0) await sleep((over * (number - (number % atOnce))) / orders);
    const status = await call(agent, 'POST', urls[number % urls.length] + path, { item, paymentTakes });
    stoodStill = Math.max(stoodStill, performance.now() - answeredAt);
    answeredAt = performance.now();
    const outcome = status === 201 ? 'sold' : status === 409 ? 'soldOut' : 'failed';
    answers[outcome] += 1;
    onAnswer(outcome, answers.sold);
  };
  await Promise.all(Array.from({ length: orders }, order));
  const seconds = (performance.now() - startedAt) / 1_000;
  return { ...answers, seconds, stoodStill: stoodStill / 1_000 };
}

function call(agent, method, url, body) {
  return new Promise((resolve, reject) => {
    const text = JSON.stringify(body);
    const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) };
    request(url, { method, agent, headers }, (response) => {
      response.resume();
      response.on('end', () => resolve(response.statusCode));
      response.on('error', reject);
    })
      .on('error', reject)
      .end(text);
  });
}
