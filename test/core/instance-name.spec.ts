import { jest } from '@jest/globals';
import * as os from 'node:os';

/** The name under which a manager without the option `instance` lists what it holds, on a host of this name. */
async function instanceOn(host: string): Promise<string | undefined> {
  let name: string | undefined;
  await jest.isolateModulesAsync(async () => {
    jest.unstable_mockModule('node:os', () => ({ ...os, hostname: () => host }));
    const { LockManager, MemoryLockProvider } = await import('../../lib/index.js');
    const locks = new LockManager({ providers: { memory: new MemoryLockProvider() } });
    await locks.start();
    await locks.withLock('order', async () => {
      for await (const { instances } of locks.admin.list()) [name] = instances;
    });
    await locks.stop();
  });
  return name;
}

describe('the default instance', () => {
  it.each([
    ['shop-7f9c', 'shop-7f9c'],
    ['büro-pc', 'b%C3%BCro-pc'],
    ['会议室', '%E4%BC%9A%E8%AE%AE%E5%AE%A4'],
    ['my laptop', 'my laptop'],
    ['a\nb\u001b[31m\u007f', 'a%0Ab%1B[31m%7F'],
    ['\ud800', '%EF%BF%BD'],
    ['', 'host'],
    ['x'.repeat(80), 'x'.repeat(80)],
  ])('of a host named %j has the name %j and the process id', async (host, name) => {
    expect(await instanceOn(host)).toBe(`${name}:${process.pid}`);
  });

  it('of hosts with long names differs also where only their ends do', async () => {
    const names = [await instanceOn(`${'会'.repeat(40)}-1`), await instanceOn(`${'会'.repeat(40)}-2`)];
    expect(new Set(names).size).toBe(2);
    for (const name of names) expect(name).toMatch(/^%E4%BC%9A[\x20-\x7E]{1,91}$/);
  });
});
