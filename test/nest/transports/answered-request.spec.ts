import { Controller, Get, type NestInterceptor, UseInterceptors } from '@nestjs/common';
import { timeout } from 'rxjs';
import { DistributedLock, LockAdmin, LockService } from '../../../lib/index.js';
import { type HttpApp, type Platform, serve, until } from '../apps.js';

const waiting = ({ app }: HttpApp) => app.get(LockAdmin).waiting().length;

/** Answers with an error while its handler waits. */
const timeoutInterceptor: NestInterceptor = { intercept: (_, next) => next.handle().pipe(timeout(100)) };

describe.each<Platform>(['Express', 'Fastify', 'Fastify over HTTP/2'])('on %s', (platform) => {
  let runs = 0;
  beforeEach(() => (runs = 0));

  @Controller()
  class Orders {
    @Get('method')
    @UseInterceptors(timeoutInterceptor)
    @DistributedLock('order', { wait: '1m' })
    async method() {
      runs += 1;
    }

    @Get('patient')
    @DistributedLock('order', { wait: '1m' })
    async patient() {
      runs += 1;
    }

    @Get('request')
    @DistributedLock('order', { wait: '1m', around: 'request' })
    async request() {
      runs += 1;
    }
  }

  const answersEarly = async () =>
    await serve(
      { controllers: [Orders] },
      {},
      // Before the interceptors of the module: it answers while `around: 'request'` waits.
      (app) =>
        app.use((request: { url: string }, response: { end(text: string): void }, next: () => void) => {
          if (request.url === '/request?early') setTimeout(() => response.end('too late'), 100);
          next();
        }),
      platform,
    );

  it.each(['/method', '/request?early'])('%s: a wait ends when the response has been sent', async (path) => {
    const app = await answersEarly();
    const lock = await app.app.get(LockService).acquire('order');
    await app.fetch(path).then((response) => response.text());
    await until(() => waiting(app) === 0);
    await lock.release();
    await app.app.get(LockService).withLock('order', () => undefined);
    expect(runs).toBe(0);
  });

  it.each(['/patient', '/request'])('%s: a client that goes away changes nothing', async (path) => {
    const app = await answersEarly();
    const lock = await app.app.get(LockService).acquire('order');
    const leaving = new AbortController();
    const left = app.fetch(path, { signal: leaving.signal }).catch(() => undefined);
    await until(() => waiting(app) === 1);
    leaving.abort();
    await left;
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(waiting(app)).toBe(1);
    await lock.release();
    await until(() => runs === 1);
  });
});
