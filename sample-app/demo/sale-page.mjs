import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { root } from '../../scripts/ensure-installed.mjs';
import { LiveSale } from './live-sale.mjs';

const FILES = {
  '/': ['index.html', 'text/html'],
  '/page.css': ['page.css', 'text/css'],
  '/page.js': ['page.js', 'text/javascript'],
};
// The page needs no other host, so it may not connect to one.
const POLICY = "default-src 'self'; img-src data:";
const PUSH_INTERVAL = 100;

/**
 * Serves the live sale as a page on a free port of this machine.
 *
 * @returns {Promise<{ url: string, stop(): void }>}
 */
export async function serveSalePage(shops, provider) {
  const readers = new Set();
  let push;
  const sale = new LiveSale(shops, provider, () => {
    push ??= setTimeout(() => {
      push = undefined;
      for (const reader of readers) send(reader);
    }, PUSH_INTERVAL);
  });
  // Always the whole state: a page that reconnects needs no history.
  const send = (reader) => reader.write(`data: ${JSON.stringify(sale.state)}\n\n`);

  const ROUTES = {
    'GET /events': (response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
      readers.add(response.once('close', () => readers.delete(response)));
      send(response);
    },
    'POST /sale': (response) => response.writeHead(sale.open() ? 202 : 409).end(),
    'POST /freeze': (response) => response.writeHead(sale.freeze() ? 202 : 409).end(),
  };
  const server = createServer(({ method, url, headers }, response) => {
    // Otherwise, another website in the same browser could press the buttons, or read the events through its own host
    // name.
    const isOwn = [undefined, `http://${headers.host}`].includes(headers.origin);
    if (!isOwn || headers.host !== `127.0.0.1:${server.address().port}`) return response.writeHead(403).end();
    const [file, type] = FILES[method === 'GET' ? url : ''] ?? [];
    if (file) {
      const about = { 'content-type': `${type}; charset=utf-8`, 'content-security-policy': POLICY };
      response.writeHead(200, about).end(readFileSync(join(root, 'sample-app/page', file)));
    } else (ROUTES[`${method} ${url}`] ?? ((unknown) => unknown.writeHead(404).end()))(response);
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    stop() {
      sale.end();
      server.close();
      server.closeAllConnections();
    },
  };
}
