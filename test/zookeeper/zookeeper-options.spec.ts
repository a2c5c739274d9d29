import { LockConfigError } from '../../lib/api/errors.js';
import { LockManager } from '../../lib/core/lock-manager.js';
import { ZooKeeperLockProvider, type ZooKeeperLockProviderOptions } from '../../lib/providers/zookeeper/index.js';
import { readOptions } from '../../lib/providers/zookeeper/zookeeper-options.js';
import { capabilitiesOf } from '../backend-context.js';
import { zooKeeperForTests } from './seam.js';

const connectString = 'zk1:2182,zk2';
const servers = [
  { host: 'zk1', port: 2_182 },
  { host: 'zk2', port: 2_181 },
];

describe('the options of ZooKeeperLockProvider', () => {
  it('default to 20 s, read-write, and open nodes in the root', () => {
    expect(readOptions({ connectString })).toEqual({
      servers,
      tls: undefined,
      root: '',
      sessionTimeout: 20_000,
      recipe: 'read-write',
      auth: undefined,
      acl: [{ scheme: 'world', id: 'anyone', permissions: 'cdrwa' }],
    });
  });

  it('accept a path at the end of the servers', () => {
    expect(readOptions({ connectString: `${connectString}/a/b` })).toMatchObject({ servers, root: '/a/b' });
    expect(readOptions({ connectString: `${connectString}/` }).root).toBe('');
  });

  it("enable TLS, with Node's defaults or custom options", () => {
    expect(readOptions({ connectString, tls: true }).tls).toEqual({});
    expect(readOptions({ connectString, tls: { ca: 'ca' } }).tls).toEqual({ ca: 'ca' });
    expect(readOptions({ connectString, tls: false }).tls).toBeUndefined();
  });

  it('accept IPv6 addresses in brackets', () => {
    expect(readOptions({ connectString: '[::1]:2182,[fd00::a],zk1/a' })).toMatchObject({
      servers: [
        { host: '::1', port: 2_182 },
        { host: 'fd00::a', port: 2_181 },
        { host: 'zk1', port: 2_181 },
      ],
      root: '/a',
    });
  });

  it.each([
    ' zk1:2182, zk2 ',
    'zk1:2182\t,\n zk2:2181\n',
    'zk1:2182,zk2,',
    ',zk1:2182,, zk2,',
    'zk1:2182 , zk2 / ',
    ' zk1:2182,zk2/ ',
  ])('ignore whitespace and empty addresses: %j', (spelled) => {
    expect(readOptions({ connectString: spelled })).toMatchObject({ servers, root: '' });
  });

  it('ignore whitespace around a folder', () => {
    expect(readOptions({ connectString: ' zk1/a/b \n' }).root).toBe('/a/b');
  });

  // Otherwise, the folder would depend on the order in which a service lists the servers.
  it.each([
    'zk1:2181/x,zk2:2181/x',
    'zk1/x, zk2/x',
    'ZK1:2181/X,zk2:2181',
    'zk1:2181,zk2:2181/x,zk3:2181/x',
    'zk1:2181/x,',
    'zk1:2181/,zk2:2181/',
    '[fd00::1]:2181/x,[fd00::2]:2181/x',
    'zk1:2181/x;zk2:2181/x',
    'zk1:2181/x zk2:2181/x',
    'zk1:2181/x\tzk2:2181/x',
    'zk1:2181/a,b',
  ])('reject a folder for each address: %j', (spelled) => {
    expect(() => readOptions({ connectString: spelled })).toThrow(LockConfigError);
    expect(() => readOptions({ connectString: spelled })).toThrow(
      'Put the path after the last address: zk1:2181,zk2:2181/shop.',
    );
  });

  it('close the nodes to all other clients if they contain credentials', () => {
    const { auth, acl } = readOptions({ connectString, auth: { credentials: 'me:secret' } });
    expect(auth).toEqual({ scheme: 'digest', credentials: 'me:secret' });
    expect(acl).toEqual([{ scheme: 'auth', id: '', permissions: 'cdrwa' }]);
  });

  it('accept an ACL whose entries together contain what locks need', () => {
    const acl = [
      { scheme: 'world', id: 'anyone', permissions: 'r' },
      { scheme: 'auth', id: '', permissions: 'cdw' },
    ];
    expect(readOptions({ connectString, auth: { credentials: 'me:secret' }, acl }).acl).toEqual(acl);
  });

  it('offer no shared locks with recipe "mutex"', () => {
    expect(capabilitiesOf(new ZooKeeperLockProvider({ connectString })).shared).toBe(true);
    expect(capabilitiesOf(new ZooKeeperLockProvider({ connectString, recipe: 'mutex' })).shared).toBe(false);
  });

  it.each<[string, object]>([
    ['connectString', {}],
    ['connectString', { connectString: '' }],
    ['connectString', { connectString: 'zk1:65536' }],
    ['connectString', { connectString: ' , ' }],
    ['connectString', { connectString: '/shop' }],
    ['connectString', { connectString: 'zk1 zk2' }],
    ['connectString', { connectString: 'zk1;zk2' }],
    ['connectString', { connectString: 'zk1 :2181' }],
    ['connectString', { connectString: '::1:2181' }],
    ['connectString', { connectString: '[zk1]:2181' }],
    ['tls', { connectString, tls: 'secret' }],
    ['tls', { connectString, tls: null }],
    ['connectString', { connectString: 'me:secret@zk1:2181' }],
    ['connectString', { connectString: `${connectString}/shop/` }],
    ['connectString', { connectString: `${connectString}/shop/../x` }],
    ['connectString', { connectString: `${connectString}/a\0` }],
    ['sessionTimeout', { connectString, sessionTimeout: 0 }],
    ['sessionTimeout', { connectString, sessionTimeout: 'soon' }],
    ['recipe', { connectString, recipe: 'semaphore' }],
    ['auth.credentials', { connectString, auth: {} }],
    ['auth', { connectString, auth: null }],
    ['auth.scheme', { connectString, auth: { scheme: 5, credentials: 'me:secret' } }],
    ['acl', { connectString, acl: [] }],
    ['acl[0]', { connectString, acl: [null] }],
    ['acl[0].permissions', { connectString, acl: [{ scheme: 'world', id: 'anyone', permissions: ['r'] }] }],
    ['acl[0].permissions', { connectString, acl: [{ scheme: 'world', id: 'anyone', permissions: 'x' }] }],
    ['acl[0].scheme', { connectString, acl: [{ schema: 'world', id: 'anyone', permissions: 'cdrw' }] }],
    ['acl', { connectString, acl: [{ scheme: 'world', id: 'anyone', permissions: 'crwa' }] }],
  ])('reject an invalid "%s": %j', (option, options) => {
    const construct = () => new ZooKeeperLockProvider(options as ZooKeeperLockProviderOptions);
    expect(construct).toThrow(LockConfigError);
    expect(construct).toThrow(`"${option}"`);
    expect(construct).not.toThrow('secret');
  });
});

describe('the connect strings of two services on a real server', () => {
  const zk = zooKeeperForTests();
  const started: LockManager[] = [];
  afterEach(() => Promise.all(started.splice(0).map((locks) => locks.stop())));

  /** Starts an application whose locks are on these servers. */
  async function start(connectString: string): Promise<LockManager> {
    const locks = new LockManager({ providers: { zookeeper: new ZooKeeperLockProvider({ connectString }) } });
    started.push(locks);
    await locks.start();
    return locks;
  }
  /** Returns the number of clients that the server has had, without this request itself. */
  const clients = async () => Number(/zk_connection_request_count\t(\d+)/.exec(await zk.server.ask('mntr'))![1]);

  it('fail the start before it connects, and create nothing, if they have a folder for each address', async () => {
    const [first, second] = [`127.0.0.1:${zk.server.port}/x`, `localhost:${zk.server.port}/x`];
    const [nodes, before] = [await zk.admin.children('/'), await clients()];
    for (const connectString of [`${first},${second}`, `${second},${first}`, `${first}, ${second}`]) {
      const starting = (async () => (await start(connectString)).acquire('a'))();
      await expect(starting).rejects.toBeInstanceOf(LockConfigError);
      await expect(starting).rejects.toThrow('Put the path after the last address: zk1:2181,zk2:2181/shop.');
    }
    expect(await zk.admin.children('/')).toEqual(nodes);
    expect(await clients()).toBe(before);
  });

  it('may have whitespace around addresses and folder, and list servers in any order, and still lock each other out', async () => {
    const [first, second] = [`127.0.0.1:${zk.server.port}`, `localhost:${zk.server.port}`];
    const locks = await start(` ${first} ,\t${second} /shop \n`);
    const others = await start(`${second}, ${first},/shop`);
    const held = await locks.acquire('a');
    expect(await others.tryAcquire('a')).toBeNull();
    expect(await held.release()).toBe('released');
    const next = await others.acquire('a');
    expect(next.fencingToken).toBeGreaterThan(held.fencingToken!);
    expect(await next.release()).toBe('released');
    expect(await zk.admin.children('/shop')).not.toEqual([]);
    // No folder whose name contains the whitespace.
    expect((await zk.admin.children('/')).sort()).toEqual(['shop', 'zookeeper']);
  });
});
