import { Controller, Get } from '@nestjs/common';
import { HealthCheck, HealthCheckService, TerminusModule } from '@nestjs/terminus';
import {
  type DistributedLockModuleOptions,
  LockService,
  LockUnavailableError,
  MemoryLockProvider,
} from '../../lib/index.js';
import { LockHealthIndicator } from '../../lib/integrations/terminus/index.js';
import { ScriptedProvider } from '../core/scripted-provider.js';
import { close, serve } from '../nest/apps.js';

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

/** From now on, and those that wait for an answer. */
function answerReleases(provider: ScriptedProvider): void {
  provider.onRelease = () => 'released';
  for (const release of provider.releases) release.answer('released');
}

const UP = { code: 200, status: 'ok', details: { locks: { status: 'up' } } };
const down = (message: string) => ({ code: 503, status: 'error', details: { locks: { status: 'down', message } } });
const LATE = down('The lock backend did not answer in time.');
const UNAVAILABLE = down('The lock backend is unavailable, or the application is stopping.');

it('a provider that locks is up, and the probe is given back', async () => {
  const { get, locks } = await healthOf({ provider: new MemoryLockProvider() });
  expect(await get('/ready')).toEqual(UP);
  const lock = await locks.tryAcquire(PROBE);
  expect(lock).not.toBeNull();
  // Busy is an answer.
  expect(await get('/ready')).toEqual(UP);
});

it('each provider has an answer of its own, and readiness follows the worst', async () => {
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

it('silence is down in time, also that of the release, and an answer is up again', async () => {
  const provider = new ScriptedProvider();
  const { get } = await healthOf({ provider });
  const begun = performance.now();
  expect(await get('/ready')).toEqual(LATE);
  provider.onAcquire = (_, grant) => grant();
  expect(await get('/ready')).toEqual(LATE);
  // Nothing else would end the wait for the release.
  expect(performance.now() - begun).toBeLessThan(15_000);
  provider.onRelease = () => 'unknown';
  expect(await get('/ready')).toEqual(LATE);
  answerReleases(provider);
  expect(await get('/ready')).toEqual(UP);
});

it('a backend that is down at boot is down, and up when it is there', async () => {
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

it('an application that stops takes no new locks, and says so', async () => {
  const { app } = await healthOf({});
  const indicator = app.get(LockHealthIndicator);
  await close(app);
  expect(await indicator.pingCheck('locks')).toEqual(UNAVAILABLE.details);
});

it('misuse is no state of health', async () => {
  const { app } = await healthOf({});
  const indicator = app.get(LockHealthIndicator);
  await expect(indicator.pingCheck('locks', { provider: 'nobody' })).rejects.toMatchObject({ code: 'LOCK_CONFIG' });
  await expect(indicator.pingCheck('locks', { timeout: 0 })).rejects.toThrow('"timeout"');
});
