// The candidates. Each creates a function that acquires the lock `key` and resolves to a function that releases it.
import { once } from 'node:events';
import { promisify } from 'node:util';
import zookeeper from 'node-zookeeper-client';
import { builds, load } from '../builds.mjs';

const RAW = 'raw client';
const RAW_PIPELINED = 'raw client, pipelined';

export { RAW, RAW_PIPELINED };

/**
 * Only the steps of the recipe. It lists the queue but waits for no other node, its parents already exist, it doesn't
 * notice a loss, and it doesn't recover its node after a lost reply.
 */
async function raw(client, folder, isPipelined) {
  const call = (name) => promisify(client[name].bind(client));
  const [mkdirp, create, children, remove] = ['mkdirp', 'create', 'getChildren', 'remove'].map(call);
  const parents = new Map();
  return async (key) => {
    const parent = `/${folder}/${key}`;
    if (!parents.has(key)) parents.set(key, mkdirp(parent));
    await parents.get(key);
    const created = create(`${parent}/lock-`, null, zookeeper.CreateMode.EPHEMERAL_SEQUENTIAL);
    if (!isPipelined) await created;
    const [node] = await Promise.all([created, children(parent)]);
    return () => remove(node, -1);
  };
}

/** The candidate `name` on the server, with its own session. */
export async function candidate(name, connectString) {
  if (builds.includes(name)) return ours(name, connectString);
  const client = zookeeper.createClient(connectString, { sessionTimeout: 20_000 });
  client.connect();
  await once(client, 'connected');
  const isPipelined = name === RAW_PIPELINED;
  const acquire = await raw(client, isPipelined ? 'raw-pipelined' : 'raw', isPipelined);
  return { acquire, stop: () => client.close() };
}

async function ours(build, connectString) {
  const { LockManager, ZooKeeperLockProvider, namespace } = await load(build, 'zookeeper');
  const locks = new LockManager({
    providers: { zookeeper: new ZooKeeperLockProvider({ connectString }) },
    namespace,
  });
  await locks.start();
  const acquire = async (key) => {
    const lock = await locks.acquire(key, { wait: '60s' });
    return () => lock.release();
  };
  return { acquire, stop: () => locks.stop() };
}
