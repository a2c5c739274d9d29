import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

/** A proxy that changes what a server says, which is then another server for its clients. */
export interface RewritingProxy {
  readonly port: number;
  close(): void;
}

/** @param rewrite changes one packet of the server, as Latin-1 */
export async function startRewritingProxy(port: number, rewrite: (text: string) => string): Promise<RewritingProxy> {
  const sockets = new Set<Socket>();
  const proxy = createServer((client) => {
    const server = connect(port, '127.0.0.1');
    for (const socket of [client, server]) {
      sockets.add(socket);
      socket.on('error', () => undefined);
    }
    client.pipe(server);
    server.on('data', (data) => client.write(rewrite(data.toString('latin1')), 'latin1'));
    server.on('close', () => client.destroy());
    client.on('close', () => server.destroy());
  });
  proxy.listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  return {
    port: (proxy.address() as AddressInfo).port,
    close() {
      proxy.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}
