import { from, lastValueFrom, Observable, toArray } from 'rxjs';
import { Injectable } from '@nestjs/common';
import { DistributedLock, LockDefaults, LockService } from '../../../lib/index.js';
import { ScriptedProvider } from '../../core/scripted-provider.js';
import { start } from '../apps.js';

@Injectable()
@LockDefaults({ release: 'sent' })
class Orders {
  @DistributedLock('call:#{id}')
  async call(id: string): Promise<string> {
    return Promise.resolve(id);
  }

  @DistributedLock('observable:#{id}')
  observe(id: string): Observable<string> {
    return from([id]);
  }

  @DistributedLock('iteration:#{id}')
  async *iterate(id: string): AsyncGenerator<string> {
    yield await Promise.resolve(id);
  }

  @DistributedLock('confirmed:#{id}', { release: 'confirmed' })
  async confirmed(id: string): Promise<string> {
    return Promise.resolve(id);
  }
}

function silentAtRelease(): ScriptedProvider {
  const provider = ScriptedProvider.obliging({ ordered: true });
  provider.onRelease = undefined;
  return provider;
}

it.each([
  ['a promise', async (orders: Orders) => orders.call('1')],
  ['an Observable', async (orders: Orders) => (await lastValueFrom(orders.observe('1').pipe(toArray()))).join()],
  [
    'a generator, also one that is left',
    async (orders: Orders) => {
      for await (const id of orders.iterate('1')) return id;
      return '';
    },
  ],
])("release: 'sent' of a class: %s ends while its release is unanswered", async (_, call) => {
  const provider = silentAtRelease();
  const app = await start({ providers: [Orders] }, { provider });
  expect(await call(app.get(Orders))).toBe('1');
  expect(provider.releases).toHaveLength(1);
  provider.releases[0]?.answer('released');
});

it('a method that wants the answer waits for it', async () => {
  const provider = silentAtRelease();
  const app = await start({ providers: [Orders] }, { provider });
  let isOver = false;
  const call = app
    .get(Orders)
    .confirmed('1')
    .then(() => (isOver = true));
  while (provider.releases.length === 0) await new Promise((resolve) => setImmediate(resolve));
  await new Promise((resolve) => setImmediate(resolve));
  expect(isOver).toBe(false);
  provider.releases[0]?.answer('released');
  await call;
});

it('a default of the module holds for calls too', async () => {
  const provider = silentAtRelease();
  const app = await start({}, { provider, defaults: { release: 'sent' } });
  expect(await app.get(LockService).withLock('k', () => 1)).toBe(1);
  provider.releases[0]?.answer('released');
});

it('a provider that keeps no order fails the boot, with the name of the method', async () => {
  const boot = start({ providers: [Orders] }, { provider: new ScriptedProvider() });
  await expect(boot).rejects.toThrow(/Orders\.call.*release: 'sent'/s);
});
