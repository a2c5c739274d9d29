import { once } from 'node:events';
import { connect, createServer } from 'node:net';

interface Proxy {
  readonly port: number;
  delay(milliseconds: number): void;
  close(): Promise<void>;
}

const proxyModule = '../../chaos/fleet/proxy.mjs';
const { startProxy } = (await import(proxyModule)) as { startProxy: (port: number) => Promise<Proxy> };

it('the delays of many chunks do not add up, and keep their order', async () => {
  const received: number[] = [];
  const server = createServer((socket) => socket.on('data', (data) => received.push(...data))).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  const proxy = await startProxy(port);
  proxy.delay(300);
  const client = connect(proxy.port, '127.0.0.1');
  client.setNoDelay(true);
  await once(client, 'connect');
  const startedAt = performance.now();
  for (let chunk = 0; chunk < 20; chunk += 1) {
    client.write(Buffer.of(chunk));
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  while (received.length < 20) await new Promise((resolve) => setTimeout(resolve, 10));
  const took = performance.now() - startedAt;
  expect(received).toEqual([...received].sort((one, other) => one - other));
  expect(took).toBeGreaterThan(300);
  // Twenty delays one after the other would be 6 s.
  expect(took).toBeLessThan(4_000);
  client.destroy();
  await proxy.close();
  server.close();
});
