import { afterAll, beforeAll } from '@jest/globals';
import { readFile } from 'node:fs/promises';
import { LockUnavailableError } from '../../lib/api/errors.js';
import { QuorumKeyLayout } from '../../lib/providers/redlock/quorum-key-layout.js';
import { FakeClock } from '../../lib/testing/index.js';
import { granted, RELEASE, request, until } from '../redis/seam.js';
import { type Quorum, startQuorum, startRedlock } from './quorum.js';

const { run: RUN } = new QuorumKeyLayout('lock');

// The line that docs/providers/redlock.md tells users to copy.
async function documentedRules(): Promise<string[]> {
  const page = await readFile(new URL('../../docs/providers/redlock.md', import.meta.url), 'utf8');
  const rules = /^ACL SETUSER locks on >secret (.+)$/m.exec(page)?.[1];
  if (rules === undefined) throw new Error('docs/providers/redlock.md does not name the permissions.');
  return rules.split(' ');
}

describe('under the permissions that the documentation names', () => {
  let quorum: Quorum;
  let rules: string[];
  let nodes: { url: string }[];
  const allow = (...given: string[]) =>
    Promise.all(
      quorum.admins.map((admin) => admin.call('ACL', ['SETUSER', 'locks', 'reset', 'on', '>secret', ...given])),
    );
  const refused = async () =>
    (await Promise.all(quorum.admins.map((admin) => admin.call('ACL', ['LOG']) as Promise<unknown[]>))).flat();

  beforeAll(async () => {
    quorum = await startQuorum(3);
    rules = await documentedRules();
    nodes = quorum.servers.map(({ port }) => ({ url: `redis://locks:secret@127.0.0.1:${port}` }));
    await allow(...rules);
  });
  afterAll(() => quorum.stop());

  it('everything works: votes, writes of tokens, renewal, parking, inspection, force, the doctor, a restart, a reconnect', async () => {
    const { provider, events } = await startRedlock({ nodes, delayedRestart: false });
    const grant = granted(await provider.acquire(request('k')));
    expect(await provider.acquire(request('k', { wait: 0 }))).toBe('busy');
    expect(await provider.renew(grant, 30_000)).toMatchObject({});
    expect(await provider.inspect('k')).toMatchObject({ state: 'held' });
    expect(await provider.release(grant, RELEASE)).toBe('released');
    const parked = granted(await provider.acquire(request('k', { minHold: 600_000 })));
    expect(await provider.release(parked, { keepFor: 500_000, failed: false })).toBe('released');
    expect(await provider.forceRelease('k')).toBe(true);
    const messages = (await provider.check()).map(({ message }) => message);
    expect(messages.filter((message) => !/AOF|appendonly/.test(message))).toEqual([]);
    await Promise.all(quorum.admins.map((admin) => admin.call('CLIENT', ['KILL', 'USER', 'locks'])));
    await until(() => events.some(({ type }) => type === 'recovered'), 'they are back');
    const again = granted(await provider.acquire(request('k')));
    expect(await provider.release(again, RELEASE)).toBe('released');
    expect(await refused()).toEqual([]);
    await provider.stop();
  });

  it('with delayedRestart the run of each node is noted, and the next process votes immediately', async () => {
    const options = { nodes, maxLease: 600_000, delayedRestart: true };
    const clock = new FakeClock();
    const ann = await startRedlock(options, { clock });
    await clock.advance(600_000);
    const noted = async () => (await Promise.all(quorum.admins.map((admin) => admin.exists(RUN)))).every(Boolean);
    await until(noted, 'the runs are noted');
    const bob = await startRedlock(options, { clock: new FakeClock() });
    const grant = granted(await bob.provider.acquire(request('k', { wait: 0 })));
    expect(await bob.provider.release(grant, RELEASE)).toBe('released');
    expect(
      (await bob.provider.check()).map(({ message }) => message).filter((message) => message.includes(RUN)),
    ).toEqual([]);
    expect(await refused()).toEqual([]);
    await Promise.all([ann, bob].map(({ provider }) => provider.stop()));
  });

  it('with delayedRestart, where the ACL refuses the key of the run, each process counts by itself, and the doctor reports it', async () => {
    await allow(
      ...rules
        .map((rule) => (rule === '~lock:redlock*' ? '~lock:redlock ~lock:redlock:*' : rule))
        .flatMap((rule) => rule.split(' ')),
    );
    const clock = new FakeClock();
    const { provider } = await startRedlock({ nodes, maxLease: 600_000, delayedRestart: true }, { clock });
    try {
      await expect(provider.acquire(request('k', { wait: 0 }))).rejects.toBeInstanceOf(LockUnavailableError);
      await clock.advance(600_000);
      const grant = granted(await provider.acquire(request('k', { wait: 0 })));
      expect(await provider.release(grant, RELEASE)).toBe('released');
      const found = (await provider.check()).filter(({ message }) => message.includes(RUN));
      expect(found.map(({ severity }) => severity)).toEqual(['warning', 'warning', 'warning']);
    } finally {
      await provider.stop();
      await allow(...rules);
      await Promise.all(quorum.admins.map((admin) => admin.call('ACL', ['LOG', 'RESET'])));
    }
  });

  it.each([
    ...['get', 'set', 'del', 'pexpire', 'pttl', 'time', 'evalsha'].map(
      (each) => [`+${each}`, 'error', `+${each}`] as const,
    ),
    ...['ping', 'client|info', 'client|kill'].map((each) => [`+${each}`, 'warning', `+${each}`] as const),
    ['+info', 'warning', 'refuses INFO'],
  ] as const)('the doctor names what is missing of it: %s', async (rule, severity, text) => {
    await allow(...rules.filter((each) => each !== rule));
    const { provider } = await startRedlock({ nodes });
    try {
      const found = (await provider.check()).filter(
        ({ message }) => message.startsWith('Node 2') && message.includes(text),
      );
      expect(found).toMatchObject([{ severity }]);
    } finally {
      await provider.stop();
      await allow(...rules);
    }
  });
});
