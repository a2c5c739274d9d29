import { Agent, request } from 'node:http';

export const ORDERS = 500;
export const ITEMS = 100;

/**
 * One flash sale over real HTTP: all orders at once, spread over the instances of the shop.
 *
 * @param {string[]} urls where the instances are
 * @param {string} path the endpoint that takes the orders
 * @param {string} item what is sold
 * @returns {Promise<{ sold: number, soldOut: number, failed: number, seconds: number }>}
 */
export async function flashSale(urls, path, item) {
  // Every order has a connection of its own, as 500 customers would.
  const agent = new Agent({ keepAlive: false, maxSockets: Infinity });
  await call(agent, 'PUT', `${urls[0]}/stock/${item}`, { left: ITEMS });
  const startedAt = performance.now();
  const statuses = await Promise.all(
    Array.from({ length: ORDERS }, (_, order) => call(agent, 'POST', urls[order % urls.length] + path, { item })),
  );
  const count = (status) => statuses.filter((each) => each === status).length;
  const sold = count(201);
  const soldOut = count(409);
  return { sold, soldOut, failed: ORDERS - sold - soldOut, seconds: (performance.now() - startedAt) / 1000 };
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
