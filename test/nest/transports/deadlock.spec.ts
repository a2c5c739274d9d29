import { Controller, Get, Injectable, Param } from '@nestjs/common';
import {
  type BusyContext,
  DistributedLock,
  LockBusyError,
  LockDeadlockError,
  LockService,
} from '../../../lib/index.js';
import { type AppOptions, Gate, type HttpApp, type Platform, serve, start } from '../apps.js';

let gate: Gate;
let holding: number;
beforeEach(() => {
  gate = new Gate();
  holding = 0;
});

/** Resolves when two callers hold their outer locks. */
async function bothHold(): Promise<void> {
  if ((holding += 1) === 2) gate.open();
  await gate.opened;
}

@Injectable()
class Items {
  constructor(private readonly locks: LockService) {}

  @DistributedLock('item:#{outer}')
  async cross(outer: string, inner: string): Promise<string> {
    await bothHold();
    return await this.locks.withLock(`item:${inner}`, () => outer, { wait: '1m' });
  }

  @DistributedLock('item:#{outer}')
  async crossByMethod(outer: string, inner: string): Promise<unknown> {
    await bothHold();
    return await this.take(inner);
  }

  @DistributedLock('item:#{key}', {
    wait: '1m',
    onBusy: ({ error, keys }: BusyContext) => `${error.code} ${keys.join()}`,
  })
  async take(key: string): Promise<string> {
    return `took ${key}`;
  }
}

@Injectable()
class Books {
  @DistributedLock('book:#{id}')
  async lend(id: string): Promise<string> {
    return await this.record(id);
  }

  @DistributedLock('book:#{id}', { wait: 20 })
  async record(id: string): Promise<string> {
    return id;
  }

  @DistributedLock('book:#{id}')
  async lendNow(id: string): Promise<string> {
    return await this.recordNow(id);
  }

  @DistributedLock('book:#{id}', { wait: 0 })
  async recordNow(id: string): Promise<string> {
    return id;
  }
}

@Controller()
class Handlers {
  constructor(
    private readonly items: Items,
    private readonly books: Books,
  ) {}

  @Get('lend')
  async lend() {
    return await this.books.lend('7');
  }

  @Get('lend-now')
  async lendNow() {
    return await this.books.lendNow('7');
  }

  @Get('cross/:outer/:inner')
  async cross(@Param('outer') outer: string, @Param('inner') inner: string) {
    return await this.items.cross(outer, inner);
  }

  @Get('misuse')
  @DistributedLock('misuse')
  async misuse() {
    throw new LockDeadlockError('It would deadlock.');
  }
}

const served = (platform: Platform, options: AppOptions): Promise<HttpApp> =>
  serve({ controllers: [Handlers], providers: [Items, Books] }, options, undefined, platform);

describe.each<Platform>(['Express', 'Fastify'])('requests that wait for each other, on %s', (platform) => {
  it('one succeeds, and the other gets a busy response that does not name the holder', async () => {
    const warnings: string[] = [];
    const none = () => undefined;
    const logger = { log: none, error: none, warn: (text: string) => warnings.push(text) };
    const { fetch } = await served(platform, { instance: 'shop-7d9f:17', logger });
    const responses = await Promise.all([fetch('/cross/1/2'), fetch('/cross/2/1')]);
    const refused = responses.find(({ status }) => status === 423);
    expect(responses.map(({ status }) => status).sort()).toEqual([200, 423]);
    expect(refused?.headers.get('retry-after')).toBe('1');
    const body = (await refused?.text()) ?? '';
    expect(JSON.parse(body)).toEqual({
      title: 'Locked',
      status: 423,
      detail: 'The resource is in use by another request. Try again later.',
      code: 'LOCK_DEADLOCK',
    });
    const found = warnings.filter((line) => line.includes('in a cycle: this call holds'));
    expect(found).toEqual([expect.stringContaining('instance "shop-7d9f:17" holds "item:')]);
  });

  it.each(['/lend', '/lend-now'])(
    'a call that waits for itself is a server error, logged each time: %s',
    async (path) => {
      const errors: string[] = [];
      const none = () => undefined;
      const logger = { log: none, warn: none, error: (error: unknown) => errors.push(String(error)) };
      const { fetch } = await served(platform, { logger });
      for (const count of [1, 2]) {
        const response = await fetch(path);
        expect([response.status, response.headers.get('retry-after')]).toEqual([500, null]);
        expect(await response.text()).not.toMatch(/again|book/);
        const found = errors.filter((line) => /book:7.*(in Books|of its own holder)/.test(line));
        expect(found).toHaveLength(count);
      }
    },
  );

  it('misuse is a server error', async () => {
    const { fetch } = await served(platform, {});
    expect((await fetch('/misuse')).status).toBe(500);
  });
});

it('onBusy handles a call that would wait in a cycle', async () => {
  const app = await start({ providers: [Items] });
  const items = app.get(Items);
  const answers = await Promise.all([items.crossByMethod('1', '2'), items.crossByMethod('2', '1')]);
  const [refused] = answers.filter((answer) => String(answer).startsWith('LOCK_DEADLOCK'));
  const keys = refused === 'LOCK_DEADLOCK item:1' ? ['1'] : ['2'];
  expect(answers.toSorted()).toEqual([`LOCK_DEADLOCK item:${keys.join()}`, `took ${keys[0] === '1' ? '2' : '1'}`]);
});

it('LockDeadlockError carries its cycle and is not a LockBusyError', () => {
  const cycle = [{ instance: 'a', method: null, holds: 'x', waitsFor: 'y', mode: 'exclusive' }] as const;
  const error = new LockDeadlockError('In a cycle.', { cycle, waited: 7 });
  expect(error).not.toBeInstanceOf(LockBusyError);
  expect([error.cycle, error.waited]).toEqual([cycle, 7]);
  expect(new LockDeadlockError('Misuse.')).toMatchObject({ cycle: null, waited: 0 });
  expect(error.toJSON()).toEqual({
    name: 'LockDeadlockError',
    code: 'LOCK_DEADLOCK',
    message: 'In a cycle.',
    key: null,
    provider: null,
    waited: 7,
  });
});
