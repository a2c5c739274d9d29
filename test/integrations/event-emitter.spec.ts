import { Injectable } from '@nestjs/common';
import { EventEmitter2, EventEmitterModule, OnEvent } from '@nestjs/event-emitter';
import { type LockEventMap, LockService, provideLockEventRelay } from '../../lib/index.js';
import { start } from '../nest/apps.js';

it('@OnEvent hears what happens to locks, where the relay is asked for', async () => {
  @Injectable()
  class Listener {
    readonly heard: unknown[] = [];

    @OnEvent('lock.acquired')
    onAcquired({ key }: LockEventMap['acquired']) {
      this.heard.push(['acquired', key]);
    }
    @OnEvent('lock.*')
    onAny({ key }: { key: string }) {
      this.heard.push(key);
      throw new Error('of a listener');
    }
  }
  const app = await start({
    imports: [EventEmitterModule.forRoot({ wildcard: true })],
    providers: [provideLockEventRelay(EventEmitter2), Listener],
  });
  expect(await app.get(LockService).withLock('stock:42', () => 'done')).toBe('done');
  const { heard } = app.get(Listener);
  expect(heard).toHaveLength(3);
  expect(heard).toEqual(expect.arrayContaining([['acquired', 'stock:42'], 'stock:42', 'stock:42']));
});

it('any object that emits will do, and several', async () => {
  const seen: string[] = [];
  const target = (name: string) => ({ provide: name, useValue: { emit: (event: string) => seen.push(name + event) } });
  const app = await start({
    providers: [target('one'), target('two'), provideLockEventRelay('one'), provideLockEventRelay('two')],
  });
  await app.get(LockService).withLock('a', () => undefined);
  expect(seen.sort()).toEqual(['onelock.acquired', 'onelock.released', 'twolock.acquired', 'twolock.released']);
});
