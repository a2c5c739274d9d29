import { Controller, Get } from '@nestjs/common';
import { HealthCheck, HealthCheckService, HealthIndicatorService, TerminusModule } from '@nestjs/terminus';
import {
  type DistributedLockModuleOptions,
  type LeaderTerm,
  type LockInfo,
  LockService,
  LockUnavailableError,
  MemoryLockProvider,
  MemoryStore,
} from '../../lib/index.js';
import { LeaderHealthIndicator, LockHealthIndicator } from '../../lib/integrations/terminus/index.js';
import { ScriptedProvider } from '../core/scripted-provider.js';
import { deferred, startManager } from '../core/manager-rig.js';
import { close, serve, until } from '../nest/apps.js';

const PROBE = 'nestjs-distributed-lock:health';

@Controller()
class HealthController {
  constructor(
    private readonly health: HealthCheckService,
    private readonly locks: LockHealthIndicator,
  ) {}

  @Get('ready')
  @HealthCheck()
  ready() {
    return this.health.check([() => this.locks.pingCheck('locks', { timeout: '200ms' })]);
  }

  @Get('each')
  @HealthCheck()
  each() {
    return this.health.check([
      () => this.locks.pingCheck('one'),
      () => this.locks.pingCheck('two', { provider: 'two' }),
    ]);
  }
}

async function healthOf(options: DistributedLockModuleOptions) {
  const { app, fetch } = await serve(
    {
      imports: [TerminusModule.forRoot({ logger: false })],
      controllers: [HealthController],
      providers: [LockHealthIndicator],
    },
    options,
  );
  return {
    app,
    locks: app.get(LockService),
    get: async (path: string) => {
      const response = await fetch(path);
      const { status, details } = (await response.json()) as { status: string; details: unknown };
      return { code: response.status, status, details };
    },
  };
}

/** Makes all pending and future releases succeed. */
function answerReleases(provider: ScriptedProvider): void {
  provider.onRelease = () => 'released';
  for (const release of provider.releases) release.answer('released');
}

const UP = { code: 200, status: 'ok', details: { locks: { status: 'up' } } };
const down = (message: string) => ({ code: 503, status: 'error', details: { locks: { status: 'down', message } } });
const LATE = down('The lock backend did not respond in time.');
const UNAVAILABLE = down('The lock backend is unavailable, or the application is shutting down.');

it('pingCheck() is up if the provider can lock, and releases the probe', async () => {
  const { get, locks } = await healthOf({ provider: new MemoryLockProvider() });
  expect(await get('/ready')).toEqual(UP);
  const lock = await locks.tryAcquire(PROBE);
  expect(lock).not.toBeNull();
  // A busy probe still proves that the backend responds.
  expect(await get('/ready')).toEqual(UP);
});

it('each provider has its own status, and readiness follows the worst', async () => {
  const two = new ScriptedProvider();
  two.onAcquire = () => {
    throw new LockUnavailableError('redis://user:secret@10.0.0.7:6379 refused');
  };
  answerReleases(two);
  const { get } = await healthOf({ providers: { one: new MemoryLockProvider(), two }, default: 'one' });
  const health = await get('/each');
  expect(health).toMatchObject({ code: 503, details: { one: { status: 'up' }, two: { status: 'down' } } });
  expect(JSON.stringify(health)).not.toMatch(/secret|10\.0\.0\.7|nestjs-distributed-lock:health/);
});

it('pingCheck() is down if the acquire or the release gets no response in time, and recovers', async () => {
  const provider = new ScriptedProvider();
  const { get } = await healthOf({ provider });
  const begun = performance.now();
  expect(await get('/ready')).toEqual(LATE);
  provider.onAcquire = (_, grant) => grant();
  expect(await get('/ready')).toEqual(LATE);
  // Nothing else ends the wait for the release.
  expect(performance.now() - begun).toBeLessThan(15_000);
  provider.onRelease = () => 'unknown';
  expect(await get('/ready')).toEqual(LATE);
  answerReleases(provider);
  expect(await get('/ready')).toEqual(UP);
});

it('a backend that is unavailable at boot is down until it is available', async () => {
  const provider = new ScriptedProvider();
  provider.onConnect = () => Promise.reject(new LockUnavailableError('refused'));
  provider.onAcquire = () => {
    throw new LockUnavailableError('refused');
  };
  const { get } = await healthOf({ provider, failFast: false });
  expect(await get('/ready')).toEqual(UNAVAILABLE);
  provider.onAcquire = (_, grant) => grant();
  answerReleases(provider);
  expect(await get('/ready')).toEqual(UP);
});

it('pingCheck() is down after the application stops', async () => {
  const { app } = await healthOf({});
  const indicator = app.get(LockHealthIndicator);
  await close(app);
  expect(await indicator.pingCheck('locks')).toEqual(UNAVAILABLE.details);
});

it('pingCheck() rejects invalid options instead of reporting a status', async () => {
  const { app } = await healthOf({});
  const indicator = app.get(LockHealthIndicator);
  await expect(indicator.pingCheck('locks', { provider: 'nobody' })).rejects.toMatchObject({ code: 'LOCK_CONFIG' });
  await expect(indicator.pingCheck('locks', { timeout: 0 })).rejects.toThrow('"timeout"');
});

describe('LeaderHealthIndicator.isHealthy()', () => {
  const tolerance = '20s';

  async function leaders(options: DistributedLockModuleOptions = {}) {
    const { app, fetch } = await serve(
      {
        imports: [TerminusModule.forRoot({ logger: false })],
        controllers: [LeadersController],
        providers: [LeaderHealthIndicator],
      },
      options,
    );
    const get = async () => {
      const response = await fetch('/live');
      const { details } = (await response.json()) as { details: { leaders: object } };
      return { code: response.status, ...details.leaders };
    };
    return { app, get, locks: app.get(LockService) };
  }

  @Controller()
  class LeadersController {
    constructor(
      private readonly health: HealthCheckService,
      private readonly leaders: LeaderHealthIndicator,
    ) {}

    @Get('live')
    @HealthCheck()
    live() {
      return this.health.check([() => this.leaders.isHealthy('leaders')]);
    }
  }

  it('is up for leading and waiting campaigns', async () => {
    const { get, locks } = await leaders();
    expect(await get()).toEqual({ code: 200, status: 'up', campaigns: [] });
    const other = await locks.acquire('ledger');
    void locks.runAsLeader('billing', untilAborted);
    void locks.runAsLeader('ledger', untilAborted);
    await until(() => locks.isLeader('billing'));
    const campaigns = [
      { key: 'billing', provider: 'memory', leading: true },
      { key: 'ledger', provider: 'memory', leading: false },
    ];
    expect(await get()).toEqual({ code: 200, status: 'up', campaigns });
    await other.release();
  });

  it('is down while the task of a lost term runs past the tolerance, and up once it ends', async () => {
    const { locks, clock } = await startManager();
    const service = new LockService(locks);
    const indicator = new LeaderHealthIndicator(new HealthIndicatorService(), service);
    const check = () => indicator.isHealthy('leaders', { tolerance }).leaders;
    const end = deferred();
    void service.runAsLeader('billing', () => end.promise);
    await clock.advance(600_000);
    expect(check().status).toBe('up');
    await locks.admin.forceRelease('billing');
    await clock.advance(20_000);
    expect(check()).toMatchObject({ status: 'up', campaigns: [{ key: 'billing', leading: false }] });
    await clock.advance(1);
    expect(check()).toEqual({
      status: 'down',
      message: 'A term ended, but its task or an @OnlyLeader call is still running: billing.',
      campaigns: [{ key: 'billing', provider: 'main', leading: false }],
    });
    end.resolve();
    await clock.advance(0);
    expect(check().status).toBe('up');
    expect(() => indicator.isHealthy('leaders', { tolerance: -1 })).toThrow('"tolerance"');
  });

  it("is down while a call that joined a failed task's term runs past the tolerance", async () => {
    const { locks, clock } = await startManager();
    const service = new LockService(locks);
    const indicator = new LeaderHealthIndicator(new HealthIndicatorService(), service);
    const check = () => indicator.isHealthy('leaders', { tolerance }).leaders.status;
    const [failure, end] = [deferred(), deferred()];
    service.runAsLeader('billing', () => failure.promise).catch(() => undefined);
    await clock.advance(0);
    void service.leadership.runIfLeader('billing', locks.plan({}), () => end.promise);
    await clock.advance(600_000);
    failure.reject(new Error('its own'));
    await clock.advance(20_000);
    expect(check()).toBe('up');
    await clock.advance(1);
    expect(check()).toBe('down');
    end.resolve();
    await clock.advance(0);
    expect(check()).toBe('up');
  });

  it('stays up while an aborted task takes long to end', async () => {
    const { locks, clock } = await startManager();
    const service = new LockService(locks);
    const indicator = new LeaderHealthIndicator(new HealthIndicatorService(), service);
    const controller = new AbortController();
    void service.runAsLeader('billing', () => deferred().promise, { signal: controller.signal });
    await clock.advance(0);
    controller.abort();
    await clock.advance(600_000);
    expect(indicator.isHealthy('leaders', { tolerance }).leaders.status).toBe('up');
  });
});

describe('LeaderHealthIndicator.leaderCheck()', () => {
  const leader = (service: LockService, options: Parameters<LeaderHealthIndicator['leaderCheck']>[1]) =>
    new LeaderHealthIndicator(new HealthIndicatorService(), service).leaderCheck('leader', options);

  it('is up with the leading instance, even in a process that does not campaign', async () => {
    const store = new MemoryStore();
    const { locks } = await startManager({ provider: new MemoryLockProvider({ store }), instance: 'shop-1' });
    const { locks: other } = await startManager({ provider: new MemoryLockProvider({ store }), instance: 'shop-2' });
    const asked = new LockService(other);
    expect(await leader(asked, { key: 'prices' })).toEqual({
      leader: { status: 'down', key: 'prices', message: 'There is no leader.' },
    });
    const service = new LockService(locks);
    void service.runAsLeader('prices', untilAborted);
    await until(() => service.isLeader('prices'));
    expect(await leader(asked, { key: 'prices' })).toEqual({
      leader: { status: 'up', key: 'prices', instance: 'shop-1', since: expect.any(Date) as unknown },
    });
  });

  it('is down if the backend is unresponsive or unavailable, and rejects invalid options', async () => {
    const provider = Object.assign(new ScriptedProvider({ forceRelease: true }), {
      inspect: (): Promise<LockInfo | null> => new Promise(() => undefined),
    });
    const service = new LockService((await startManager({ provider })).locks);
    const message = { leader: { status: 'down', key: 'prices', message: 'The lock backend did not respond in time.' } };
    expect(await leader(service, { key: 'prices', timeout: 50 })).toEqual(message);
    provider.inspect = () => Promise.reject(new LockUnavailableError('redis://user:secret@10.0.0.7:6379 refused'));
    const health = await leader(service, { key: 'prices' });
    expect(health.leader.status).toBe('down');
    expect(JSON.stringify(health)).not.toMatch(/secret|10\.0\.0\.7/);
    await expect(leader(service, { key: 'prices', timeout: 0 })).rejects.toThrow('"timeout"');
    await expect(leader(service, { key: 'prices', provider: 'nobody' })).rejects.toThrow('nobody');
    await expect(leader(service, { key: '' })).rejects.toMatchObject({ code: 'LOCK_KEY' });
  });
});

async function untilAborted({ signal }: LeaderTerm): Promise<void> {
  await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
}
