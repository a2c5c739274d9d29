import { Agent, request } from 'node:http';

export const ORDERS = 500;
export const ITEMS = 100;

/**
 * One flash sale over real HTTP: all orders at once, spread over the instances of the shop.
 *
 * @param {string[]} urls where the instances are
 * @param {string} path the endpoint that takes the orders
 * @param {string} item what is sold
 * @param {(sold: number) => void} onSold told of each item that was sold
 * @returns {Promise<{ sold: number, soldOut: number, failed: number, seconds: number, stoodStill: number }>} with the
 * longest time in which no order was answered, in seconds
 */
export async function flashSale(urls, path, item, onSold = () => undefined) {
  // Every order has a connection of its own, as 500 customers would.
  const agent = new Agent({ keepAlive: false, maxSockets: Infinity });
  await call(agent, 'PUT', `${urls[0]}/stock/${item}`, { left: ITEMS });
  const startedAt = performance.now();
  let [sold, soldOut, answeredAt, stoodStill] = [0, 0, startedAt, 0];
  const order = async (_, number) => {
    const status = await call(agent, 'POST', urls[number % urls.length] + path, { item });
    stoodStill = Math.max(stoodStill, performance.now() - answeredAt);
    answeredAt = performance.now();
    if (status === 201) onSold((sold += 1));
    if (status === 409) soldOut += 1;
  };
  await Promise.all(Array.from({ length: ORDERS }, order));
  const seconds = (performance.now() - startedAt) / 1_000;
  return { sold, soldOut, failed: ORDERS - sold - soldOut, seconds, stoodStill: stoodStill / 1_000 };
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
