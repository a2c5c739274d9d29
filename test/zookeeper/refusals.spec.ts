import { jest } from '@jest/globals';
import { rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { LockManager } from '../../lib/core/lock-manager.js';
import { LockUnavailableError } from '../../lib/api/errors.js';
import { silentLogger } from '../../lib/api/logger.js';
import { ZooKeeperLockProvider } from '../../lib/providers/zookeeper/index.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { startEnsemble } from '../servers/zookeeper-ensemble.js';
import { startZooKeeper, type ZooKeeperServer } from '../servers/zookeeper-server.mjs';
import { contextFor } from '../backend-context.js';
import { direct, type TestEvent } from '../direct-backend.js';
import { granted, request, startBackend, until } from './seam.js';

jest.setTimeout(60_000);

describe('a connection that ZooKeeper refuses', () => {
  const servers: ZooKeeperServer[] = [];
  afterEach(async () => {
    for (const server of servers.splice(0)) await server.stop();
  });
  const start = async (...options: Parameters<typeof startZooKeeper>) => {
    const server = await startZooKeeper(...options);
    servers.push(server);
    return server;
  };

  it('is retried rarely if the server requires SASL, passes the code to callers, and is logged once', async () => {
    const jaas = join(tmpdir(), 'jaas.conf');
    await writeFile(
      jaas,
      'Server {\n  org.apache.zookeeper.server.auth.DigestLoginModule required\n  user_app="secret";\n};\n',
    );
    const server = await start({
      properties: {
        'zookeeper.sessionRequireClientSASLAuth': 'true',
        'zookeeper.authProvider.1': 'org.apache.zookeeper.server.auth.SASLAuthenticationProvider',
        'java.security.auth.login.config': jaas,
      },
    });
    const { connectString } = server;
    await expect(startBackend({ connectString, sessionTimeout: '4s' })).rejects.toThrow(
      /cannot use ZooKeeper.*SESSION_CLOSED_REQUIRE_SASL_AUTH \(-124\)/,
    );

    const lines: string[] = [];
    const time = new FakeClock();
    const locks = new LockManager({
      providers: { zookeeper: new ZooKeeperLockProvider({ connectString, sessionTimeout: '30s' }) },
      clock: time,
      failFast: false,
      logger: { ...silentLogger, warn: (line) => lines.push(line) },
    });
    await locks.start();
    const connections = async () => Number(/zk_connection_request_count\t(\d+)/.exec(await server.ask('mntr'))![1]);
    const before = await connections();
    // The first two attempts are at least 2.5 s apart.
    const refused = locks.acquire('order', { wait: 2_499 }).catch((reason: unknown) => reason);
    await time.advance(2_499);
    const error = await refused;
    expect(error).toBeInstanceOf(LockUnavailableError);
    expect((error as Error).message).toContain('(-124)');
    expect(await connections()).toBe(before);
    await until(async () => {
      await time.advance(250);
      return (await connections()) - before >= 2;
    }, 'the connection is retried');
    expect(lines.filter((line) => line.includes('-124'))).toHaveLength(1);
    await locks.stop();
    await rm(jaas);
  });

  it('fails the start with the reason if the server gives only local sessions', async () => {
    const ensemble = await startEnsemble({
      config: { localSessionsEnabled: 'true', localSessionsUpgradingEnabled: 'false' },
    });
    for (const { connectString } of [await ensemble.leader(), ...(await ensemble.followers())]) {
      await expect(startBackend({ connectString, sessionTimeout: '1s' })).rejects.toThrow(
        /cannot use ZooKeeper.*EPHEMERAL_ON_LOCAL_SESSION \(-120\).*localSessionsUpgradingEnabled=true/,
      );
    }
    await ensemble.stop();
  });

  it('works again one session after the server is set up again', async () => {
    const server = await start();
    const options = { connectString: `${server.connectString}/closed`, sessionTimeout: '30s' } as const;
    const owner = await startBackend({ ...options, auth: { credentials: 'owner:secret' } });
    await owner.backend.close();
    const events: TestEvent[] = [];
    const provider = new ZooKeeperLockProvider(options);
    const time = new FakeClock();
    const backend = direct(provider.createBackend(contextFor(events, { clock: time })), events);
    await expect(backend.connect()).rejects.toThrow(/NO_AUTH \(-102\)/);
    await server.kill();
    await rm(join(server.folder, 'data'), { recursive: true });
    await server.restart();
    await until(async () => {
      await time.advance(250);
      // Another client got a reply, so a reply to this one is not late by much on its clock.
      await server.ask('mntr');
      return events.some(({ type }) => type === 'recovered');
    }, 'it is connected again');
    granted(await backend.acquire(request('order')));
    await backend.close();
  });
});
