import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { startTcpProxy } from './tcp-proxy.js';

it('the delays of many chunks do not add up, and keep their order', async () => {
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
  // Twenty delays one after the other would be 6 s.
  expect(took).toBeLessThan(4_000);
  client.destroy();
  await proxy.close();
  server.close();
});

it('connections go to several addresses in turn, and are known by their ports at the server', async () => {
  const accepted: Socket[] = [];
  // Each address of the loopback network belongs to the same interface. Other systems than Linux have only the first by themselves.
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

it('after a loss of state, a connection is reset at the next packet of its client, and the server never notices', async () => {
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
  // A new one works, and the old one is still there at the server.
  const other = connect(proxy.port, '127.0.0.1');
  other.write('hello');
  while (accepted.length < 2) await new Promise((resolve) => setTimeout(resolve, 5));
  expect([received, atServer.destroyed, atServer.readableEnded]).toEqual([[], false, false]);
  other.destroy();
  await proxy.close();
  server.close();
});

it('after a drop, what both sides send on a connection vanishes, and a new one works', async () => {
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
