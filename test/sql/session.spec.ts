import { AsyncLocalStorage } from 'node:async_hooks';
import { EventEmitter } from 'node:events';
import type { Dialect, ServerFacts } from '../../lib/providers/sql/connection/dialect.js';
import { SilentServerError } from '../../lib/providers/sql/connection/failure.js';
import { Session } from '../../lib/providers/sql/connection/session.js';
import type { Server } from '../../lib/providers/sql/connection/server.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';

const context = new AsyncLocalStorage<string>();

/** A session whose statements the test answers, and the contexts in which they were sent. */
function scripted() {
  const clock = new FakeClock();
  const sent: (readonly [sql: string, context: string | undefined])[] = [];
  const open: { resolve(answer: unknown): void; reject(error: Error): void }[] = [];
  const send = (_: unknown, sql: string) => {
    sent.push([sql, context.getStore()]);
    return new Promise((resolve, reject) => open.push({ resolve, reject }));
  };
  const dialect = {
    ...{ send, sever: () => undefined, isAnswer: () => true, isInTransaction: () => undefined, beginWith: send },
    ...{ heartbeat: () => 'heartbeat', saysReadOnly: () => false },
  } as unknown as Dialect;
  const silences: number[] = [];
  const home = {
    ...{ clock, dialect, commandTimeout: 1_000, endOnServer: () => undefined, ended: () => undefined },
    confirmWriter: () => Promise.resolve(),
    fellSilent: (since: number) => silences.push(since),
  } as unknown as Server;
  const connection = new EventEmitter();
  const limits = { guard: 30_000, lockWait: 1_000, autocommit: false };
  const session = new Session(home, connection, {} as ServerFacts, undefined, limits, clock.now());
  const answer = async (value?: unknown) => {
    open.shift()?.resolve(value);
    await new Promise((resolve) => setImmediate(resolve));
  };
  return { clock, session, connection, sent, silences, answer, texts: () => sent.map(([sql]) => sql) };
}

describe('a session', () => {
  it('sends a statement that has waited for its turn in the context of its caller', async () => {
    const { session, sent, answer } = scripted();
    const [first, second] = ['first', 'second'].map((name) => context.run(name, () => session.run(name)));
    const third = session.run('third');
    for (let index = 0; index < 3; index += 1) await answer(index);
    expect(await Promise.all([first, second, third])).toEqual([0, 1, 2]);
    expect(sent).toEqual([
      ['first', 'first'],
      ['second', 'second'],
      ['third', undefined],
    ]);
  });

  it('sends nothing behind a silent statement before that is answered, and gives its late answer to who asks', async () => {
    const { clock, session, texts, silences, answer } = scripted();
    const silent = session.run('silent').catch((error: unknown) => error);
    await clock.advance(1_000);
    const error = (await silent) as SilentServerError;
    expect(error).toBeInstanceOf(SilentServerError);
    expect(silences).toHaveLength(1);
    expect([session.isSilent, session.inFlight]).toEqual([true, 1]);
    const next = session.run('next');
    expect(texts()).toEqual(['silent']);
    let late: unknown;
    void error.answer?.then((value: unknown) => (late = value));
    await answer('late');
    expect(late).toBe('late');
    expect([session.isSilent, texts()]).toEqual([false, ['silent', 'next']]);
    await answer('in time');
    expect(await next).toBe('in time');
    expect(session.inFlight).toBe(0);
  });

  it('is not renewed behind a statement that is not answered for a third of its guard', async () => {
    const { clock, session } = scripted();
    session.run('long').catch(() => undefined);
    await clock.advance(10_000);
    expect(await session.renew()).toEqual({ validUntil: session.validUntil });
    await clock.advance(1);
    expect(await session.renew()).toBe('unknown');
  });

  it('is not used again while a statement is in flight that its user has not awaited', async () => {
    const { session, answer } = scripted();
    const uses: boolean[] = [];
    const use = (statement: string) => {
      session.onFree = (isReusable) => uses.push(isReusable);
      return session.run(statement);
    };
    const awaited = use('awaited');
    await answer();
    await awaited;
    session.giveBack();
    use('not awaited').catch(() => undefined);
    session.giveBack();
    expect(uses).toEqual([true, false]);
  });

  it('refuses each statement that waits in a transaction that has ended, whatever its listener does', async () => {
    const { session, connection, texts, answer } = scripted();
    const begun = session.beginWith('begin', 'row');
    await answer([{ read_only: false }]);
    await begun;
    const outcomes: string[] = [];
    const note = (name: string) => (error: Error) => outcomes.push(`${name}: ${error.message}`);
    session.inTransaction(() => session.sendNow('one')).catch(note('one'));
    session.inTransaction(() => session.sendNow('two')).catch(note('two'));
    session.onLost = () => {
      throw new Error('of a listener');
    };
    expect(() => connection.emit('end')).toThrow('of a listener');
    await new Promise((resolve) => setImmediate(resolve));
    expect(outcomes).toEqual([
      'one: The session was lost.',
      'two: The lock transaction has ended, so this statement was not executed.',
    ]);
    expect(texts()).toEqual(['begin', 'one']);
  });
});
