import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from './server-process.mjs';
import { startTcpProxy, type TcpProxy } from './tcp-proxy.js';
import { prepareZooKeeper, type ZooKeeperOptions, type ZooKeeperServer } from './zookeeper-server.mjs';

const SIZE = 3;

/** Three ZooKeepers that are one, on wires of ours: each server can be cut off from the others. */
export interface ZooKeeperEnsemble {
  readonly servers: readonly ZooKeeperServer[];
  readonly connectString: string;
  /** The server that leads, as soon as one does. */
  leader(): Promise<ZooKeeperServer>;
  /** Those that follow it now. */
  followers(): Promise<readonly ZooKeeperServer[]>;
  /**
   * Lets nothing pass between this server and the others, as a network that is down: the connections stay open. A follower goes
   * on answering its clients until it has missed its leader for `syncLimit` ticks.
   */
  cutOff(server: ZooKeeperServer): void;
  /** Ends `cutOff`. */
  join(server: ZooKeeperServer): void;
  stop(): Promise<void>;
}

/**
 * Starts three servers. Each knows the others by ports of proxies, so what a follower and its leader say to each other
 * can be stopped. Elections are not: a server names its real port when it calls another one. They carry no data, and a server that is
 * elected without being reached leads nobody.
 */
export async function startEnsemble(options: ZooKeeperOptions = {}): Promise<ZooKeeperEnsemble> {
  const ids = Array.from({ length: SIZE }, (_, index) => index + 1);
  const ports = await Promise.all(ids.map(async () => ({ quorum: await freePort(), election: await freePort() })));
  const wires: { readonly from: number; readonly to: number; readonly proxy: TcpProxy }[] = [];
  for (const from of ids) {
    for (const to of ids.filter((id) => id !== from)) {
      // A leader listens once it is elected, and a follower that is sent away then calls for another election.
      wires.push({ from, to, proxy: await startTcpProxy(ports[to - 1]!.quorum, { patience: 1_000 }) });
    }
  }
  const servers = await Promise.all(
    ids.map(async (from) => {
      const peers: Record<string, string> = {};
      for (const to of ids) {
        const { quorum, election } = ports[to - 1]!;
        const wire = wires.find((each) => each.from === from && each.to === to);
        peers[`server.${to}`] = `127.0.0.1:${wire?.proxy.port ?? quorum}:${election}`;
      }
      const server = await prepareZooKeeper({
        ...options,
        config: { initLimit: 20, syncLimit: 5, ...peers, ...options.config },
      });
      await writeFile(join(server.folder, 'data', 'myid'), String(from));
      return server;
    }),
  );
  // None of them serves before two are up.
  await Promise.all(servers.map((server) => server.restart()));

  const modes = () =>
    Promise.all(
      servers.map(async (server) => ({
        server,
        mode: /^Mode: (\w+)/m.exec(await server.ask('srvr').catch(() => ''))?.[1],
      })),
    );
  const wiresOf = (server: ZooKeeperServer) => {
    const id = servers.indexOf(server) + 1;
    return wires.filter(({ from, to }) => from === id || to === id).map(({ proxy }) => proxy);
  };
  return {
    servers,
    connectString: servers.map((server) => server.connectString).join(','),
    async leader() {
      for (const until = Date.now() + 20_000; Date.now() < until; await sleep(20)) {
        const leader = (await modes()).find(({ mode }) => mode === 'leader');
        if (leader) return leader.server;
      }
      throw new Error('No server of the ensemble leads.');
    },
    async followers() {
      return (await modes()).filter(({ mode }) => mode === 'follower').map(({ server }) => server);
    },
    cutOff(server) {
      for (const wire of wiresOf(server)) wire.freeze();
    },
    join(server) {
      for (const wire of wiresOf(server)) wire.thaw();
    },
    async stop() {
      await Promise.all(servers.map((server) => server.stop()));
      await Promise.all(wires.map(({ proxy }) => proxy.close()));
    },
  };
}
