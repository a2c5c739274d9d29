import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from './server-process.mjs';
import { startTcpProxy, type TcpProxy } from './tcp-proxy.js';
import { prepareZooKeeper, type ZooKeeperOptions, type ZooKeeperServer } from './zookeeper-server.mjs';

const SIZE = 3;

/** An ensemble of three ZooKeeper servers connected by proxies, so that each can be partitioned from the others. */
export interface ZooKeeperEnsemble {
  readonly servers: readonly ZooKeeperServer[];
  readonly connectString: string;
  /** Returns the leader as soon as there is one. */
  leader(): Promise<ZooKeeperServer>;
  /** Returns the current followers. */
  followers(): Promise<readonly ZooKeeperServer[]>;
  /**
   * Partitions this server from the others. Connections stay open, as in a network outage. A follower keeps serving its
   * clients until it has missed its leader for `syncLimit` ticks.
   */
  cutOff(server: ZooKeeperServer): void;
  /** Ends the partition. */
  join(server: ZooKeeperServer): void;
  stop(): Promise<void>;
}

/**
 * Starts three servers. They connect to each other through proxies, so traffic between a follower and its leader can be
 * blocked. Election traffic can't, because a server announces its real port. Elections carry no data, and an elected
 * server that can't be reached leads no followers.
 */
export async function startEnsemble(options: ZooKeeperOptions = {}): Promise<ZooKeeperEnsemble> {
  const ids = Array.from({ length: SIZE }, (_, index) => index + 1);
  const ports = await Promise.all(ids.map(async () => ({ quorum: await freePort(), election: await freePort() })));
  const wires: { readonly from: number; readonly to: number; readonly proxy: TcpProxy }[] = [];
  for (const from of ids) {
    for (const to of ids.filter((id) => id !== from)) {
      // A leader listens only after its election, and a follower that it refuses starts another election.
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
  // No server serves clients before two are up.
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
      throw new Error('The ensemble has no leader.');
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
