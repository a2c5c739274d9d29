import { LockConfigError } from '../../lib/api/errors.js';
import type { StoredRecord } from '../../lib/api/lock-provider.js';
import { LockPaths, segmentOf } from '../../lib/providers/zookeeper/lock-path.js';
import { ZooKeeperLockProvider } from '../../lib/providers/zookeeper/index.js';
import type { ZooKeeperBackend } from '../../lib/providers/zookeeper/zookeeper-backend.js';
import { contextFor } from '../backend-context.js';
import { zooKeeperForTests } from './seam.js';

/** A process must not lose its session because the machine is slow. */
const SESSION = 20_000;

const valueOf = async (answer: Promise<StoredRecord>) => (await answer).value;

describe('records on ZooKeeper', () => {
  const paths = new LockPaths('', 'shop');
  const zk = zooKeeperForTests();
  const started: ZooKeeperBackend[] = [];

  afterEach(() => Promise.all(started.splice(0).map((backend) => backend.close())));

  async function start(): Promise<ZooKeeperBackend> {
    const provider = new ZooKeeperLockProvider({ connectString: zk.server.connectString, sessionTimeout: SESSION });
    const backend = provider.createBackend(contextFor([], { namespace: 'shop' })) as ZooKeeperBackend;
    started.push(backend);
    await backend.connect();
    return backend;
  }
  async function listed({ records }: ZooKeeperBackend): Promise<unknown[]> {
    const found: unknown[] = [];
    for await (const record of records.list()) found.push(record);
    return found;
  }
  const versionOf = async (name: string) => (await zk.admin.stat(`${paths.jobs}/${segmentOf(name)}`))?.version;

  it('are persistent nodes, and each write changes the node once, even with the same text', async () => {
    const { records } = await start();
    expect(await valueOf(records.replace('written', null, 'é'))).toBe('é');
    expect(await zk.admin.read('/shop/%records/%jobs/written')).toBe('é');
    expect(await valueOf(records.replace('written', 'é', 'b'))).toBe('b');
    expect(await valueOf(records.replace('written', 'é', 'b'))).toBe('b');
    expect(await versionOf('written')).toBe(2);
    expect(await valueOf(records.replace('written', 'é', 'c'))).toBe('b');
    expect(await valueOf(records.read('written'))).toBe('b');
    expect(await versionOf('written')).toBe(2);
    await started.pop()?.close();
    const next = await start();
    expect(await valueOf(next.records.read('written'))).toBe('b');
  });

  it('contain their name if the node name is a hash, and other nodes are not listed', async () => {
    const backend = await start();
    const long = 'x'.repeat(300);
    for (const { name } of (await listed(backend)) as { name: string }[])
      await zk.admin.remove(`${paths.jobs}/${segmentOf(name)}`);
    for (const name of [long, '\ud800']) await backend.records.replace(name, null, 'two\nlines');
    expect(await zk.admin.read(`${paths.jobs}/${segmentOf(long)}`)).toBe(`"${long}"\ntwo\nlines`);
    for (const name of ['a b', `%sha256-${'0'.repeat(64)}`, '%ZZ']) await zk.admin.create(`${paths.jobs}/${name}`);
    const found = await listed(backend);
    expect(found).toHaveLength(2);
    expect(found).toEqual(
      expect.arrayContaining([
        { name: long, value: 'two\nlines' },
        { name: '\ud800', value: 'two\nlines' },
      ]),
    );
  });

  it("have the server's time on creation, and after an operator has removed the session's node", async () => {
    const backend = await start();
    const before = Date.now();
    const [session] = await zk.admin.children(paths.sessions);
    await zk.admin.remove(`${paths.sessions}/${session}`);
    const { serverTime } = await backend.records.read('nothing');
    const created = await backend.records.replace('created', null, 'a');
    // The server is on this machine.
    for (const time of [serverTime, created.serverTime]) {
      expect(time).toBeGreaterThanOrEqual(before);
      expect(time).toBeLessThanOrEqual(Date.now());
    }
  });

  it('are read after a write, so that a server that lags returns no old value', async () => {
    const backend = await start();
    await backend.records.replace('fresh', null, 'a');
    const [session] = await zk.admin.children(paths.sessions);
    const beats = async () => (await zk.admin.stat(`${paths.sessions}/${session}`))?.version ?? 0;
    const before = await beats();
    await backend.records.read('fresh');
    expect(await beats()).toBeGreaterThan(before);
  });

  it('reject with LockConfigError if an ACL refuses them, and name the missing permission', async () => {
    const backend = await start();
    await backend.records.replace('closed', null, 'a');
    await zk.admin.allow(`${paths.jobs}/closed`, 'ra');
    const refused = backend.records.replace('closed', 'a', 'b');
    await expect(refused).rejects.toBeInstanceOf(LockConfigError);
    await expect(refused).rejects.toThrow(
      /^Record "closed" of provider "main" is not available: ZooKeeper refused the request \(.*NO_AUTH.*%jobs\/closed" does not grant permission w \(write\)/,
    );
    await zk.admin.allow(`${paths.jobs}/closed`, 'wa');
    await expect(backend.records.read('closed')).rejects.toThrow(/does not grant permission r \(read\)/);
    await zk.admin.allow(`${paths.jobs}/closed`, 'rw');
    expect(await valueOf(backend.records.replace('closed', 'a', 'b'))).toBe('b');
  });
});
