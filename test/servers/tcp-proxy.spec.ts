import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { startTcpProxy } from './tcp-proxy.js';

it('delays many chunks in parallel and in order', async () => {
  const received: number[] = [];
  const server = createServer((socket) => socket.on('data', (data) => received.push(...data))).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  const proxy = await startTcpProxy(port);
  proxy.slow(300, 'both');
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
  // Sequential delays would take 6 s.
  expect(took).toBeLessThan(4_000);
  client.destroy();
  await proxy.close();
  server.close();
});

it('connects to several addresses in turn and reports the local ports that the server sees', async () => {
  const accepted: Socket[] = [];
  // Every 127.x.x.x address belongs to the loopback interface. Outside Linux, only the first is configured by default.
  const hosts = process.platform === 'linux' ? ['127.0.0.1', '127.0.0.2'] : ['127.0.0.1', '127.0.0.1'];
  const server = createServer((socket) => accepted.push(socket)).listen(0);
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  const proxy = await startTcpProxy(port, { host: hosts });
  const clients: Socket[] = [];
  for (let count = 1; count <= 3; count += 1) {
    clients.push(connect(proxy.port, '127.0.0.1'));
    while (accepted.length < count) await new Promise((resolve) => setTimeout(resolve, 5));
  }
  const addresses = accepted.map(({ localAddress }) => localAddress?.replace('::ffff:', ''));
  expect(addresses).toEqual([...hosts, hosts[0]]);
  expect(proxy.clientPorts).toEqual(accepted.map(({ remotePort }) => remotePort));
  for (const client of clients) client.destroy();
  await proxy.close();
  server.close();
});

it("loseState() resets a connection at the client's next packet without notifying the server", async () => {
  const accepted: Socket[] = [];
  const server = createServer((socket) => accepted.push(socket)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  const proxy = await startTcpProxy(port);
  const client = connect(proxy.port, '127.0.0.1');
  const received: unknown[] = [];
  client.on('data', (data) => received.push(data));
  client.write('hello');
  while (accepted.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  const [atServer] = accepted as [Socket];
  await once(atServer, 'data');
  proxy.loseState();
  atServer.write('lost');
  const broken = once(client, 'error');
  client.write('more');
  expect(await broken).toMatchObject([{ code: 'ECONNRESET' }]);
  // New connections work, and the old one is still open on the server.
  const other = connect(proxy.port, '127.0.0.1');
  other.write('hello');
  while (accepted.length < 2) await new Promise((resolve) => setTimeout(resolve, 5));
  expect([received, atServer.destroyed, atServer.readableEnded]).toEqual([[], false, false]);
  other.destroy();
  await proxy.close();
  server.close();
});

it('drop() discards data in both directions, and new connections work', async () => {
  const received: string[] = [];
  const accepted: Socket[] = [];
  const server = createServer((socket) => {
    accepted.push(socket);
    socket.on('data', (data) => received.push(String(data)));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  const proxy = await startTcpProxy(port);
  const client = connect(proxy.port, '127.0.0.1');
  client.on('data', (data) => received.push(String(data)));
  client.write('hello');
  while (received.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  proxy.drop();
  client.write('lost');
  accepted[0]?.write('lost');
  const other = connect(proxy.port, '127.0.0.1');
  other.write('again');
  while (received.length < 2) await new Promise((resolve) => setTimeout(resolve, 5));
  expect(received).toEqual(['hello', 'again']);
  expect([client.destroyed, accepted[0]?.destroyed]).toEqual([false, false]);
  for (const socket of [client, other]) socket.destroy();
  await proxy.close();
  server.close();
});
