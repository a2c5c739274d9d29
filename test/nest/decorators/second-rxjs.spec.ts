import { createRequire } from 'node:module';
import { join } from 'node:path';
import { Injectable, type Type } from '@nestjs/common';
import * as rxjs from 'rxjs';
import { currentLock, DistributedLock, LockAdmin, LockService, OnlyLeader } from '../../../lib/index.js';
import { start, until } from '../apps.js';

// A second copy, as if two packages of an application depended on different versions.
const bundle = join(import.meta.dirname, '../../../node_modules/rxjs/dist/bundles/rxjs.umd.js');
const other = createRequire(import.meta.url)(bundle) as typeof rxjs;

/** What the compiler emits for the annotated return type. */
function Returns(type: unknown): MethodDecorator {
  return Reflect.metadata('design:returntype', type);
}

@Injectable()
class Feed {
  @DistributedLock('feed:#{id}')
  @Returns(other.Observable)
  watch(id: string): rxjs.Observable<string> {
    return new other.Observable<string>((subscriber) => {
      subscriber.next(`${id} under ${currentLock().key}`);
    });
  }
  @DistributedLock('feed')
  @Returns(other.BehaviorSubject)
  latest(): rxjs.Observable<string> {
    return new other.BehaviorSubject(currentLock().key);
  }
  @DistributedLock('feed', { wait: 0, onBusy: () => other.of('instead') })
  @Returns(other.Observable)
  busy(): rxjs.Observable<string> {
    return other.EMPTY;
  }
  @DistributedLock('feed')
  unannotated() {
    return other.of('a');
  }
}

async function run<T extends object>(type: Type<T>) {
  const app = await start({ providers: [type] });
  const admin = app.get(LockAdmin);
  return { it: app.get(type), locks: app.get(LockService), held: () => admin.held().map(({ key }) => key) };
}

it('the second copy of RxJS has its own Observable', () => {
  expect(other.Observable).not.toBe(rxjs.Observable);
  expect(other.of(1)).not.toBeInstanceOf(rxjs.Observable);
});

it('an Observable of a second copy of RxJS is locked for each subscription', async () => {
  const { it: feed, held } = await run(Feed);
  const watching = feed.watch('1');
  expect(held()).toEqual([]);
  const values: string[] = [];
  // With the operators of either copy.
  const subscriptions = [
    watching.pipe(rxjs.map((value) => value)).subscribe((value) => values.push(value)),
    other.from(feed.watch('2')).subscribe((value) => values.push(value)),
    feed
      .watch('3')
      .pipe(other.map((value) => value))
      .subscribe((value) => values.push(value)),
  ];
  await until(() => values.length === 3);
  expect(values.sort()).toEqual(['1 under feed:1', '2 under feed:2', '3 under feed:3']);
  expect(held().sort()).toEqual(['feed:1', 'feed:2', 'feed:3']);
  for (const subscription of subscriptions) subscription.unsubscribe();
  await until(() => held().length === 0);
});

it('a subclass of Observable from a second copy is locked too, and a result of onBusy is passed on', async () => {
  const { it: feed, locks, held } = await run(Feed);
  expect(await rxjs.firstValueFrom(feed.latest())).toBe('feed');
  await until(() => held().length === 0);
  await locks.acquire('feed');
  expect(await rxjs.lastValueFrom(feed.busy())).toBe('instead');
});

it('an Observable of a second copy is refused if the compiler emitted no type for it', async () => {
  const { it: feed } = await run(Feed);
  await expect(feed.unannotated() as unknown as Promise<unknown>).rejects.toThrow(
    /^Feed\.unannotated returns a stream.*annotate the return type as Observable.*emitDecoratorMetadata/,
  );
});

it('decorators that need a promise refuse an Observable of a second copy at decoration', () => {
  expect(() => {
    class Leaders {
      @((OnlyLeader as (key: string) => unknown)('leader') as MethodDecorator)
      @Returns(other.Observable)
      watch() {
        return other.EMPTY;
      }
    }
    return Leaders;
  }).toThrow(/^Leaders\.watch returns a stream, but @OnlyLeader needs a method that returns a promise/);
});
