import { AsyncLocalStorage } from 'node:async_hooks';
import { EventEmitter, getEventListeners } from 'node:events';
import type { Run } from '../../lib/providers/sql/connection/answer.js';
import type { Dialect, ServerFacts } from '../../lib/providers/sql/connection/dialect.js';
import { SilentServerError } from '../../lib/providers/sql/connection/failure.js';
import { Session } from '../../lib/providers/sql/connection/session.js';
import { Slots } from '../../lib/providers/sql/connection/sessions.js';
import { Server } from '../../lib/providers/sql/connection/server.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';
import { LockCapacityError } from '../../lib/api/errors.js';
import type { AcquireRequest } from '../../lib/api/lock-provider.js';
import { type AdvisoryDatabase, AdvisoryRequest } from '../../lib/providers/sql/advisory/advisory-request.js';
import { HoldingSession } from '../../lib/providers/sql/advisory/holding-session.js';
import { HoldingSessions } from '../../lib/providers/sql/advisory/holding-sessions.js';
import { postgres } from '../../lib/providers/sql/connection/postgres.js';
import { contextFor } from '../backend-context.js';

const context = new AsyncLocalStorage<string>();

/** A session whose statements the test answers, with the async contexts in which they were sent. */
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
  it("sends a queued statement in its caller's async context", async () => {
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

  it('sends nothing behind a silent statement until its reply arrives, and passes the late reply to the caller', async () => {
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

  it('is not renewed behind a statement without a reply for a third of the guard', async () => {
    const { clock, session } = scripted();
    session.run('long').catch(() => undefined);
    await clock.advance(10_000);
    expect(await session.renew()).toEqual({ validUntil: session.validUntil });
    await clock.advance(1);
    expect(await session.renew()).toBe('unknown');
  });

  it('is not reused while a statement that its user did not await is in flight', async () => {
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

  it('refuses each statement queued in a transaction that has ended, even if its listener throws', async () => {
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

describe('a session that could not be ended on the server', () => {
  it.each([
    ['is ended later', 7_200_000, ['KILL 7']],
    ['is gone if the server has restarted while this machine was suspended', 1_800_000, []],
  ])('%s', async (_, uptime, kills) => {
    const clock = new FakeClock();
    const sent: string[] = [];
    let isCutOff = false;
    let ended = () => {};
    const facts = { server: 'one', kill: 'KILL 7', unsafe: [], readOnly: [], isReadOnly: 'false', maxConnections: 9 };
    const dialect = {
      connect: () => Promise.resolve(new EventEmitter()),
      setUp: () => Promise.resolve(facts),
      send: (_: unknown, sql: string) => {
        if (isCutOff) return Promise.reject(new Error('read ECONNRESET'));
        sent.push(sql);
        return Promise.resolve();
      },
      uptime: async (run: Run) => {
        await run('uptime');
        setImmediate(ended);
        return uptime;
      },
      ...{ sever: () => undefined, isAnswer: () => false },
    } as unknown as Dialect;
    const server = new Server(contextFor([], { clock }), dialect, {
      commandTimeout: 1_000,
      allowUnsafeTopology: false,
    });
    const session = await server.open({ guard: 30_000, lockWait: 1_000, autocommit: false });
    await clock.advance(10_000);
    isCutOff = true;
    session.destroy();
    clock.suspend(3_600_000);
    await clock.advance(0);
    isCutOff = false;
    const end = new Promise<void>((resolve) => (ended = resolve));
    await clock.advance(1_000);
    await end;
    expect(sent).toEqual(['uptime', ...kills]);
  });
});

describe('slots for sessions', () => {
  it("leave nothing on a waiter's signal, which may outlive thousands of waits", async () => {
    const slots = new Slots(new FakeClock(), 1, 0, () => new Error('all in use'));
    await slots.take({ wait: 0 });
    const { signal } = new AbortController();
    for (let round = 0; round < 3; round += 1) {
      const waiting = slots.take({ wait: 1_000, signal });
      slots.free();
      await waiting;
    }
    // Node 20 keeps all signals made by AbortSignal.any in this set.
    const name = Object.getOwnPropertySymbols(signal).find(({ description }) => description === 'kDependantSignals');
    expect(name && (Reflect.get(signal, name) as Set<unknown> | undefined)?.size).toBeUndefined();
    expect(getEventListeners(signal, 'abort')).toEqual([]);
  });
});

/** A session whose statements the test answers, since a server would grant the session whatever it already has. */
function scriptedHolding() {
  const answers: ((done: boolean) => void)[] = [];
  const ask = () => new Promise<unknown>((resolve) => answers.push((done) => resolve([{ done }])));
  const ends: string[] = [];
  const session = {
    ...{ run: ask, isLost: () => false, isSilent: false, overdueFor: 0 },
    ...{ facts: { isReadOnly: 'false' } },
    giveBack: () => ends.push('given back'),
    destroy: () => ends.push('destroyed'),
  };
  const holding = new HoldingSession(session as unknown as Session, postgres.advisory, () => {});
  const sent = () => new Promise((resolve) => setImmediate(resolve));
  const next = async (done = true) => {
    await sent();
    answers.shift()?.(done);
    await sent();
  };
  return { holding, next, answers, session, ends };
}

/** Attempts for one key, by their ids, with these replies for their tokens. */
function attemptsOn(holding: HoldingSessions, nextTokens: () => Promise<bigint> | undefined) {
  const settings = { sessionGuard: 30_000, fencing: true, family: postgres };
  const database = { settings, scope: '', holding, table: { nextTokens } } as unknown as AdvisoryDatabase;
  const { signal } = new AbortController();
  return (id: string) => {
    const request = { key: 'k', id, mode: 'exclusive', wait: 0, callers: 1, signal } as unknown as AcquireRequest;
    return new AdvisoryRequest(contextFor(), database, request);
  };
}

describe('locks on one session', () => {
  it('keep a writer out while a reader joins as another leaves', async () => {
    const { holding, next, answers } = scriptedHolding();
    const first = holding.tryLock('name', 'shared');
    await next();
    expect(await first).toBe(true);
    const second = holding.tryLock('name', 'shared');
    const left = holding.unlock('name', 'shared');
    await next();
    expect(await second).toBe(true);
    await next();
    await left;
    expect(await holding.tryLock('name', 'exclusive')).toBe(false);
    expect(answers).toEqual([]);
    const last = holding.unlock('name', 'shared');
    const writer = holding.tryLock('name', 'exclusive');
    await next();
    await next();
    expect([await last, await writer]).toEqual([true, true]);
  });

  it('a lock that could not be released ends the session with its last user', async () => {
    const { holding, next, session, ends } = scriptedHolding();
    const [one, other] = [{ onSessionLost: () => undefined }, { onSessionLost: () => undefined }];
    for (const user of [one, other]) holding.enter(user);
    const locked = holding.tryLock('name', 'exclusive');
    await next();
    expect(await locked).toBe(true);
    session.run = () => Promise.reject(new Error('interrupted'));
    await expect(holding.unlock('name', 'exclusive')).rejects.toThrow('interrupted');
    holding.leave(one);
    expect(ends).toEqual([]);
    holding.leave(other);
    expect(ends).toEqual(['destroyed']);
  });

  it('keep the session for an attempt that retries while its lock is released because the token arrived too late', async () => {
    const { session, next, ends } = scriptedHolding();
    const tokens = [Promise.reject(new SilentServerError('late')), Promise.resolve(5n)];
    const holding = new HoldingSessions({ take: async () => session as unknown as Session }, postgres.advisory, 2);
    const attempt = attemptsOn(holding, () => tokens.shift())('1');
    const late = attempt.acquire();
    await next();
    await expect(late).rejects.toThrow('late');
    const again = attempt.acquire();
    // The unlock, then the second lock.
    await next();
    await next();
    expect(await again).toMatchObject({ fencingToken: 5n });
    expect(ends).toEqual([]);
    const released = attempt.release();
    await next();
    expect(await released).toBe('released');
    expect(ends).toEqual(['given back']);
  });

  it('open the session one time for all callers, who share a failure unless it comes from a caller with a short wait', async () => {
    const { session } = scriptedHolding();
    const refused = new Error('connect ECONNREFUSED');
    const impatient = new LockCapacityError('in use', { key: 'k', provider: 'p' });
    const outcomes = [
      Promise.reject(refused),
      Promise.reject(impatient),
      Promise.resolve(session as unknown as Session),
    ];
    for (const outcome of outcomes) outcome.catch(() => undefined);
    let openings = 0;
    const holding = new HoldingSessions({ take: () => outcomes[openings++]! }, postgres.advisory, 2);
    const all = () => {
      const users = Array.from({ length: 100 }, () => ({ onSessionLost: () => undefined }));
      return Promise.allSettled(users.map(async (user) => holding.shared({} as AcquireRequest, user)));
    };
    for (const outcome of await all()) expect(outcome).toMatchObject({ reason: refused });
    expect(openings).toBe(1);
    const [first, ...others] = await all();
    expect(first).toMatchObject({ reason: impatient });
    expect(new Set(others.map(({ status }) => status))).toEqual(new Set(['fulfilled']));
    expect(openings).toBe(3);
  });

  it('are not busy for their own process while the server is silent about an attempt that may hold the lock', async () => {
    const [silent, other] = [scriptedHolding(), scriptedHolding()];
    const sessions = [silent.session];
    const take = async () => (sessions.shift() ?? other.session) as unknown as Session;
    const holding = new HoldingSessions({ take }, postgres.advisory, 2);
    const attempt = attemptsOn(holding, () => Promise.reject(new SilentServerError('late')));
    const first = attempt('1').acquire();
    await silent.next();
    Object.assign(silent.session, { isSilent: true, overdueFor: 2_000 });
    await expect(first).rejects.toThrow('late');
    const second = attempt('2');
    const refused = second.acquire();
    await Promise.all([other.next(false), expect(refused).rejects.toThrow('An earlier attempt')]);
    expect(second.unansweredFor).toBe(2_000);
    await silent.next();
    const third = attempt('3').acquire();
    await other.next(false);
    expect(await third).toBe('busy');
  });

  it('are not busy for their own process until a lock that was granted too late is unlocked', async () => {
    const [late, other] = [scriptedHolding(), scriptedHolding()];
    const sessions = [late.session];
    const take = async () => (sessions.shift() ?? other.session) as unknown as Session;
    const holding = new HoldingSessions({ take }, postgres.advisory, 2);
    // Another request keeps the session open.
    await holding.shared({} as AcquireRequest, { onSessionLost: () => undefined });
    const { run } = late.session;
    late.session.run = () => Promise.reject(new SilentServerError('late', run()));
    const attempt = attemptsOn(holding, () => undefined)('1');
    await expect(attempt.acquire()).rejects.toThrow('late');
    Object.assign(late.session, { run, isSilent: true, overdueFor: 2_000 });
    const isRefused = async () => {
      const again = attempt.acquire();
      await Promise.all([other.next(false), expect(again).rejects.toThrow('An earlier attempt')]);
    };
    await isRefused();
    // The reply arrives, and the unlock is sent.
    late.session.isSilent = false;
    await late.next();
    await isRefused();
    await late.next();
    const again = attempt.acquire();
    await other.next(false);
    expect(await again).toBe('busy');
  });

  it('release a lock whose unlock was cancelled, and reuse the session', async () => {
    const { holding, next, session } = scriptedHolding();
    const locked = holding.tryLock('name', 'exclusive');
    await next();
    expect(await locked).toBe(true);
    const { run } = session;
    session.run = () => {
      session.run = run;
      return Promise.reject(Object.assign(new Error('canceling statement'), { code: '57014' }));
    };
    const left = holding.unlock('name', 'exclusive');
    await next();
    await next();
    expect(await left).toBe(true);
    expect(holding.mayHaveLock).toBe(false);
  });

  it('admit a writer after the last reader, even if a canceled statement has locked the name one more time', async () => {
    const { holding, session } = scriptedHolding();
    let locks = 0;
    const run = (sql: string) => {
      if (!sql.includes('unlock')) return Promise.resolve([{ done: (locks += 1) > 0 }]);
      return Promise.resolve([{ done: locks > 0 && (locks -= 1) >= 0 }]);
    };
    const canceled = (sql: string) => {
      void run(sql);
      return Promise.reject(Object.assign(new Error('canceling statement'), { code: '57014' }));
    };
    Object.assign(session, { run });
    expect(await holding.tryLock('name', 'shared')).toBe(true);
    Object.assign(session, { run: canceled });
    const second = holding.tryLock('name', 'shared');
    await expect(second).rejects.toThrow('canceling statement');
    Object.assign(session, { run });
    expect(locks).toBe(2);
    expect(await holding.unlock('name', 'shared')).toBe(true);
    expect(locks).toBe(0);
  });

  it('request many locks in one statement while another is in flight, and give each caller its own result', async () => {
    const asked: unknown[] = [];
    const answers: ((rows: object[]) => void)[] = [];
    const run = (_: string, values: readonly unknown[]) => {
      asked.push(values);
      return new Promise((resolve) => answers.push(resolve));
    };
    const writer = { facts: { isReadOnly: 'false' } };
    const session = { run, ...writer } as unknown as Session;
    const holding = new HoldingSession(session, postgres.advisory, () => {});
    const first = holding.tryLock('1', 'exclusive');
    await new Promise((resolve) => setImmediate(resolve));
    const [free, taken, again] = ['2', '3', '1'].map((name) => holding.tryLock(name, 'exclusive'));
    answers.shift()!([{ done: true }]);
    expect([await first, await again]).toEqual([true, false]);
    answers.shift()!([{ done: true }, { done: false }]);
    expect([await free, await taken]).toEqual([true, false]);
    expect(asked).toEqual([['1'], [['2', '3']]]);
  });

  it('request a lock again only after its release has executed, so that another process may get it in between', async () => {
    const { holding, next, answers } = scriptedHolding();
    const first = holding.tryLock('name', 'exclusive');
    await next();
    expect(await first).toBe(true);
    const [left, again] = [holding.unlock('name', 'exclusive'), holding.tryLock('name', 'exclusive')];
    await new Promise((resolve) => setImmediate(resolve));
    expect(answers).toHaveLength(1);
    await next();
    expect(await left).toBe(true);
    await next();
    expect(await again).toBe(true);
  });

  it('keep the lock of a caller that requested it after a statement that was first late and then cancelled', async () => {
    const { holding, session } = scriptedHolding();
    const statements: { sql: string; settle: (error?: Error) => void }[] = [];
    const run = (sql: string) =>
      new Promise<unknown>((resolve, reject) => {
        statements.push({ sql, settle: (error) => (error ? reject(error) : resolve([{ done: true }])) });
      });
    const settled = () => new Promise((resolve) => setImmediate(resolve));
    Object.assign(session, { run: (sql: string) => Promise.reject(new SilentServerError('late', run(sql))) });
    const late = holding.tryLock('name', 'exclusive');
    await expect(late).rejects.toThrow('late');
    Object.assign(session, { run });
    const second = holding.tryLock('name', 'exclusive');
    await settled();
    statements[0]!.settle(Object.assign(new Error('canceling statement'), { code: '57014' }));
    await settled();
    statements[1]!.settle();
    expect(await second).toBe(true);
    await settled();
    expect(statements.filter(({ sql }) => sql.includes('unlock'))).toEqual([]);
    // What the first statement has locked, if anything, ends with the session.
    expect(holding.mayHaveLock).toBe(true);
  });

  it('discard the session if a statement for several locks failed, since it is unknown which of them it holds', async () => {
    const { holding, session } = scriptedHolding();
    session.run = () => Promise.reject(new Error('out of shared memory'));
    const asked = ['1', '2'].map((name) => holding.tryLock(name, 'exclusive'));
    for (const answer of asked) await expect(answer).rejects.toThrow('out of shared memory');
    expect(holding.isUsable).toBe(false);
  });
});
