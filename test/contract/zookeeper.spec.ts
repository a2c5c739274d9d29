import type { LockProvider } from '../../lib/api/lock-provider.js';
import { LockPaths } from '../../lib/providers/zookeeper/lock-path.js';
import { ZooKeeperLockProvider, type ZooKeeperLockProviderOptions } from '../../lib/providers/zookeeper/index.js';
import { describeLockProvider, type ProviderHarness } from '../../lib/provider-kit/index.js';
import { capabilitiesOf } from '../backend-context.js';
import { exploration } from '../exploration.js';
import { startTcpProxy, type TcpProxy } from '../servers/tcp-proxy.js';
import { startZooKeeper, type ZooKeeperServer } from '../servers/zookeeper-server.mjs';
import { ZooKeeperAdmin } from '../zookeeper/zookeeper-admin.js';

const SESSION = 4_000;

let server: ZooKeeperServer;
let admin: ZooKeeperAdmin;
// Each provider has its own proxy, which can be cut.
const wires = new Map<LockProvider, TcpProxy>();
const closed = new Map<LockProvider, string>();

beforeAll(async () => {
  server = await startZooKeeper();
  admin = await ZooKeeperAdmin.connect(server.connectString);
});
afterAll(async () => {
  await Promise.all([...wires.values()].map((wire) => wire.close()));
  admin.close();
  await server.stop();
});

const harness = (recipe: NonNullable<ZooKeeperLockProviderOptions['recipe']>): ProviderHarness => ({
  capabilities: capabilitiesOf(new ZooKeeperLockProvider({ connectString: 'nowhere', recipe })),
  create: async () => {
    const wire = await startTcpProxy(server.port);
    const provider = new ZooKeeperLockProvider({
      connectString: `127.0.0.1:${wire.port}`,
      sessionTimeout: SESSION,
      recipe,
    });
    wires.set(provider, wire);
    return provider;
  },
  records: true,
  // How long a lock is valid without a response from the server.
  lease: (SESSION * 2) / 3,
  // The server ends a session after its full timeout plus a tick.
  bounds: { takeOver: SESSION },
  faults: {
    revoke: async (namespace, key) => {
      const folder = new LockPaths('', namespace).folderOf(key);
      const [first] = (await admin.children(folder)).toSorted((a, b) => a.slice(-10).localeCompare(b.slice(-10)));
      await admin.remove(`${folder}/${first ?? ''}`);
    },
    cutOff: async (provider) => wires.get(provider)?.refuse(),
    silence: async (provider) => wires.get(provider)?.freeze(),
    refuse: async (provider, namespace) => {
      closed.set(provider, `/${namespace}`);
      // No client may create a lock, but an admin may undo this.
      await admin.allow(`/${namespace}`, 'ra');
    },
    restore: async (provider) => {
      const path = closed.get(provider);
      if (path !== undefined) await admin.allow(path, 'cdrwa');
      wires.get(provider)?.heal();
    },
  },
  remainingLocks: async (namespace) => {
    const paths = await admin.tree(`/${namespace}`);
    // The folder for session nodes is created once per namespace.
    return paths.filter((path) => path !== `/${namespace}` && !path.endsWith('/%sessions')).length;
  },
});

describeLockProvider('zookeeper, with nodes of read-write locks', harness('read-write'));
// The mutex recipe is the same one with other node names.
if (exploration(0, 1) === 1) describeLockProvider('zookeeper, with nodes of mutexes', harness('mutex'));
