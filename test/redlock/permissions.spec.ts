import { readFile } from 'node:fs/promises';
import { LockConfigError, LockUnavailableError } from '../../lib/api/errors.js';
import { RedlockKeyLayout } from '../../lib/providers/redlock/key-layout.js';
import { FakeClock } from '../../lib/testing/index.js';
import { granted, RELEASE, request, until } from '../redis/seam.js';
import { type Quorum, type StartedRedlock, startQuorum, startRedlock, wiresTo } from './quorum.js';

const { run: RUN } = new RedlockKeyLayout('lock');

// Returns the rules that docs/providers/redlock.md tells users to copy.
async function documentedRules(): Promise<string[]> {
  const page = await readFile(new URL('../../docs/providers/redlock.md', import.meta.url), 'utf8');
  const rules = /^ACL SETUSER locks on >secret (.+)$/m.exec(page)?.[1];
  if (rules === undefined) throw new Error('docs/providers/redlock.md does not list the permissions.');
  return rules.split(' ');
}

describe('with the documented permissions', () => {
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

  it('votes, token writes, renewal, retention, inspection, forced release, diagnostics and a reconnect work', async () => {
    const { backend, events } = await startRedlock({ nodes, delayedRestart: false });
    const grant = granted(await backend.acquire(request('k')));
    expect(await backend.acquire(request('k', { wait: 0 }))).toBe('busy');
    expect(await backend.renew(grant, 30_000)).toMatchObject({});
    expect(await backend.inspect('k')).toMatchObject({ state: 'held' });
    expect(await backend.release(grant, RELEASE)).toBe('released');
    const retained = granted(await backend.acquire(request('k', { minHold: 600_000 })));
    expect(await backend.release(retained, { keepFor: 500_000, failed: false })).toBe('released');
    expect(await backend.forceRelease('k')).toBe(true);
    const messages = (await backend.diagnose()).map(({ message }) => message);
    expect(messages.filter((message) => !/AOF|appendonly/.test(message))).toEqual([]);
    await Promise.all(quorum.admins.map((admin) => admin.call('CLIENT', ['KILL', 'USER', 'locks'])));
    await until(() => events.some(({ type }) => type === 'recovered'), 'the nodes are back');
    const again = granted(await backend.acquire(request('k')));
    expect(await backend.release(again, RELEASE)).toBe('released');
    expect(await refused()).toEqual([]);
    await backend.close();
  });

  describe('when two of three nodes deny the script after a reconnect', () => {
    const change = (rule: string) =>
      Promise.all(quorum.admins.slice(0, 2).map((admin) => admin.call('ACL', ['SETUSER', 'locks', rule])));
    const attempt = ({ backend }: StartedRedlock) =>
      backend.acquire(request('k', { wait: 0 })).catch((error: unknown) => error);
    const untilRefused = async (started: StartedRedlock) => {
      await change('-eval');
      await Promise.all(quorum.admins.map((admin) => admin.call('CLIENT', ['KILL', 'USER', 'locks'])));
      await until(
        async () => (await attempt(started)) instanceof LockConfigError,
        'the provider knows that both nodes deny it',
      );
    };
    afterEach(async () => {
      await allow(...rules);
      await Promise.all(quorum.admins.map((admin) => admin.call('ACL', ['LOG', 'RESET'])));
    });

    it('the nodes vote again once they allow it, on the same connections', async () => {
      const started = await startRedlock({ nodes, delayedRestart: false });
      const { backend, events } = started;
      const connections = async () => {
        const lists = await Promise.all(quorum.admins.map((admin) => admin.call('CLIENT', ['LIST'])));
        return lists.map((list) => String(list).match(/^id=\d+(?= .* user=locks )/gm));
      };
      await untilRefused(started);
      const before = await connections();
      expect(before.map((ids) => ids?.length)).toEqual([1, 1, 1]);
      await change('+eval');
      await until(() => events.some(({ type }) => type === 'recovered'), 'the nodes vote again');
      expect(await backend.release(granted(await backend.acquire(request('k'))), RELEASE)).toBe('released');
      expect(await connections()).toEqual(before);
      await backend.close();
    });

    it('the denial stays the cause while the nodes are identified again', async () => {
      const clock = new FakeClock();
      const { wires } = await wiresTo(quorum);
      const urls = wires.map(({ port }) => ({ url: `redis://locks:secret@127.0.0.1:${port}` }));
      const started = await startRedlock({ nodes: urls, delayedRestart: false }, { clock });
      await untilRefused(started);
      for (const wire of wires.slice(0, 2)) wire.holdReplies();
      await clock.advance(1_000);
      const error = await attempt(started);
      expect(error).toBeInstanceOf(LockConfigError);
      expect(String(error)).toMatch(/A node refuses: the Redis user lacks a permission \(NOPERM/);
      for (const wire of wires) wire.passReplies();
      await started.backend.close();
      await Promise.all(wires.map((wire) => wire.close()));
    });
  });

  it("with delayedRestart, each node's run is recorded, and the next process votes immediately", async () => {
    const options = { nodes, maxLease: 600_000, delayedRestart: true };
    const clock = new FakeClock();
    const ann = await startRedlock(options, { clock });
    await clock.advance(600_000);
    const noted = async () => (await Promise.all(quorum.admins.map((admin) => admin.exists(RUN)))).every(Boolean);
    await until(noted, 'the runs are recorded');
    const bob = await startRedlock(options, { clock: new FakeClock() });
    const grant = granted(await bob.backend.acquire(request('k', { wait: 0 })));
    expect(await bob.backend.release(grant, RELEASE)).toBe('released');
    expect(
      (await bob.backend.diagnose()).map(({ message }) => message).filter((message) => message.includes(RUN)),
    ).toEqual([]);
    expect(await refused()).toEqual([]);
    await Promise.all([ann, bob].map(({ backend }) => backend.close()));
  });

  it('with delayedRestart and an ACL that denies the key of the run, each process counts separately, and the diagnostics report it', async () => {
    await allow(
      ...rules
        .map((rule) => (rule === '~lock:redlock*' ? '~lock:redlock ~lock:redlock:*' : rule))
        .flatMap((rule) => rule.split(' ')),
    );
    const clock = new FakeClock();
    const { backend } = await startRedlock({ nodes, maxLease: 600_000, delayedRestart: true }, { clock });
    try {
      await expect(backend.acquire(request('k', { wait: 0 }))).rejects.toBeInstanceOf(LockUnavailableError);
      await clock.advance(600_000);
      const grant = granted(await backend.acquire(request('k', { wait: 0 })));
      expect(await backend.release(grant, RELEASE)).toBe('released');
      const found = (await backend.diagnose()).filter(({ message }) => message.includes(RUN));
      expect(found.map(({ severity }) => severity)).toEqual(['warning', 'warning', 'warning']);
    } finally {
      await backend.close();
      await allow(...rules);
      await Promise.all(quorum.admins.map((admin) => admin.call('ACL', ['LOG', 'RESET'])));
    }
  });

  it.each([
    ...['get', 'set', 'del', 'pexpire', 'pttl', 'time', 'evalsha'].map(
      (each) => [`+${each}`, 'error', `+${each}`] as const,
    ),
    ...['ping', 'client|info', 'client|kill'].map((each) => [`+${each}`, 'warning', `+${each}`] as const),
    ['+info', 'warning', 'denies INFO'],
  ] as const)('the diagnostics name the missing permission: %s', async (rule, severity, text) => {
    await allow(...rules.filter((each) => each !== rule));
    const { backend } = await startRedlock({ nodes });
    try {
      const found = (await backend.diagnose()).filter(
        ({ message }) => message.startsWith('Node 2') && message.includes(text),
      );
      expect(found).toMatchObject([{ severity }]);
    } finally {
      await backend.close();
      await allow(...rules);
    }
  });
});
