import { Injectable, type LogLevel, type LoggerService, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { DistributedLock, DistributedLockModule, LockDefaults, MemoryLockProvider } from '../../lib/index.js';

class CapturingLogger implements LoggerService {
  readonly lines: string[] = [];
  readonly #note = (level: LogLevel) => (message: unknown, context: unknown) => {
    if (context === 'DistributedLock') this.lines.push(`${level}: ${String(message)}`);
  };
  log = this.#note('log');
  debug = this.#note('debug');
  warn = this.#note('warn');
  error = this.#note('error');
}

it('one line for each provider, and one table of what is locked', async () => {
  abstract class Base {
    @DistributedLock('base', { provider: 'sessions', wait: Infinity })
    async inherited() {}
  }
  @LockDefaults({ lease: '2m' })
  @Injectable()
  class Orders extends Base {
    @DistributedLock('order:#{order.id}', { wait: '500ms' })
    async pay(order: { id: number }) {
      return order;
    }
    @DistributedLock((id: string) => id, { lease: '10s' })
    async find(id: string) {
      return id;
    }
  }
  @Injectable()
  class AlsoInherits extends Base {}
  class SessionProvider extends MemoryLockProvider {
    override readonly capabilities = {
      ...new MemoryLockProvider().capabilities,
      lease: 'session' as const,
      shared: false,
      fair: false,
      fencing: false,
      minHold: false,
    };
  }
  @Module({
    imports: [
      DistributedLockModule.forRoot({
        providers: { memory: new MemoryLockProvider(), sessions: new SessionProvider() },
        default: 'memory',
      }),
    ],
    providers: [Orders, AlsoInherits],
  })
  class AppModule {}
  const logger = new CapturingLogger();
  const app = await NestFactory.createApplicationContext(AppModule, { logger });
  await app.close();
  expect(logger.lines).toEqual([
    'log: Lock provider "memory" is a MemoryLockProvider: exclusive and shared locks, first come, first served, with fencing tokens, a lease for each lock, minHold',
    'log: Lock provider "sessions" is a SessionProvider: exclusive locks, in no order among processes, without fencing tokens, locks live as long as their session, no minHold',
    [
      'debug: Locked methods:',
      '  method          key                provider  wait       lease',
      '  Base.inherited  base               sessions  unlimited  session',
      '  Orders.find     (key function)     memory    5s         10s',
      '  Orders.pay      order:#{order.id}  memory    500ms      2m',
    ].join('\n'),
  ]);
});
