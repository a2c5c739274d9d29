// Compiled by `npm run typecheck`, never executed.
/* eslint-disable @typescript-eslint/no-unused-vars -- methods of all shapes, only for their types. */
import { applyDecorators } from '@nestjs/common';
import { Cron } from '@nestjs/schedule';
import type { Observable } from 'rxjs';
import { type LeaderTerm, type LockService, OnlyLeader, RunAsLeader } from '../../lib/index.js';

declare const never: never;
declare const locks: LockService;

/** Methods that can be decorated. */
abstract class Leading {
  @RunAsLeader('a')
  async run(term: LeaderTerm) {}
  @RunAsLeader('b', { provider: 'redis', lease: '10s' })
  async without() {}
  @RunAsLeader('c')
  promise({ signal }: LeaderTerm): Promise<number> {
    return never;
  }
  @RunAsLeader('d')
  async part(term: Pick<LeaderTerm, 'signal'>, others = 1) {}
  @applyDecorators(RunAsLeader('e'), OnlyLeader('f'))
  async composed() {}

  @Cron('0 * * * *')
  @OnlyLeader('a')
  async report() {}
  @OnlyLeader('a', { provider: 'redis' })
  async maybe(id: string): Promise<number | undefined> {
    return never;
  }
  @OnlyLeader('a')
  protected async hidden(): Promise<void> {}
}

/** Methods that cannot be decorated. */
abstract class Refused {
  // @ts-expect-error: synchronous
  @RunAsLeader('a')
  synchronous(term: LeaderTerm) {}
  // @ts-expect-error: there is no second argument
  @RunAsLeader('a')
  async more(term: LeaderTerm, order: string) {}
  // @ts-expect-error: the argument is a term
  @RunAsLeader('a')
  async other(order: string) {}
  // @ts-expect-error: an async generator is not a promise
  @RunAsLeader('a')
  async *stream() {
    yield 1;
  }
  // @ts-expect-error: a static method
  @RunAsLeader('a')
  static async still() {}
  // @ts-expect-error: a leader has one key
  @RunAsLeader(['a', 'b'])
  async keys() {}
  // @ts-expect-error: a leader always waits for its election
  @RunAsLeader('a', { wait: '5s' })
  async wait() {}
  // @ts-expect-error: not a duration
  @RunAsLeader('a', { lease: '30' })
  async lease() {}
  // @ts-expect-error: a property
  @RunAsLeader('a')
  property = async () => {};

  // @ts-expect-error: a skipped call does not return a number
  @OnlyLeader('a')
  async number() {
    return 1;
  }
  // @ts-expect-error: synchronous
  @OnlyLeader('a')
  synchronousReport(): undefined {}
  // @ts-expect-error: not a promise
  @OnlyLeader('a')
  observable(): Observable<number> {
    return never;
  }
  // @ts-expect-error: the campaign sets the lease
  @OnlyLeader('a', { lease: '10s' })
  async leased(): Promise<void> {}
}

export async function service(): Promise<void> {
  await locks.runAsLeader('a', async ({ signal, fencingToken }) => fencingToken?.toString(), { lease: '5s' });
  const leads: boolean = locks.isLeader('a');
  // @ts-expect-error: a leader task is asynchronous
  await locks.runAsLeader('a', () => 1);
  // @ts-expect-error: a leader has one key
  await locks.runAsLeader(['a'], async () => 1);
  // @ts-expect-error: no such option
  await locks.runAsLeader('a', async () => 1, { wait: 5 });
  locks.events.on('elected', ({ key, waited, fencingToken }) => [key, waited, fencingToken]);
  locks.events.on('resigned', ({ reason }) => reason === 'task-ended');
  // @ts-expect-error: no such reason
  locks.events.on('resigned', ({ reason }) => reason === 'revoked');
}
