import { Agent, request } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';

/**
 * One flash sale over real HTTP, whose orders are spread over the instances of the shop.
 *
 * @param {string[]} urls where the instances are
 * @param {string} path the endpoint that takes the orders
 * @param {object} sale
 * @param {string} sale.item what is sold
 * @param {number} sale.items how many of it there are
 * @param {number} sale.orders how many customers want one
 * @param {number} [sale.over] in which time the orders come, in ms. Default: all at once
 * @param {number} [sale.atOnce] how many of them come at a time. Default 1
 * @param {number} [sale.paymentTakes] how long the bank takes for each, in ms
 * @param {(outcome: 'sold' | 'soldOut' | 'failed', sold: number) => void} [sale.onAnswer] called for each answer
 * @returns {Promise<{ sold: number, soldOut: number, failed: number, seconds: number, stoodStill: number }>} with the
 * longest time in which no order was answered, in seconds
 */
export async function flashSale(
  urls,
  path,
  { item, items, orders, over = 0, atOnce = 1, paymentTakes, onAnswer = () => undefined },
) {
  // Every order has a connection of its own, as its customer would.
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
