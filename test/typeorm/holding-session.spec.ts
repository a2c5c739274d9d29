import { LockCapacityError } from '../../lib/api/errors.js';
import type { AcquireRequest } from '../../lib/api/lock-provider.js';
import { AdvisoryRequest, type AdvisoryDatabase } from '../../lib/providers/sql/advisory/advisory-request.js';
import { HoldingSession } from '../../lib/providers/sql/advisory/holding-session.js';
import { HoldingSessions } from '../../lib/providers/sql/advisory/holding-sessions.js';
import type { Session } from '../../lib/providers/sql/connection/session.js';
import { SilentServerError } from '../../lib/providers/sql/connection/failure.js';
import { postgres } from '../../lib/providers/sql/connection/postgres.js';
import type { SqlSettings } from '../../lib/providers/sql/options.js';
import { contextFor } from '../backend-context.js';

/** A session whose statements are answered by hand: the server would give it whatever it has already. */
function scripted() {
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

describe('the locks on one session', () => {
  it('keep a writer out while a reader asks to join one that leaves', async () => {
    const { holding, next, answers } = scripted();
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

  it('a lock that could not be freed ends the session with its last user', async () => {
    const { holding, next, session, ends } = scripted();
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

  it('is kept by an attempt that asks again while the lock is freed whose token came too late', async () => {
    const { session, next, ends } = scripted();
    const tokens = [Promise.reject(new SilentServerError('late')), Promise.resolve(5n)];
    const holding = new HoldingSessions({ take: async () => session as unknown as Session }, postgres.advisory, 2);
    const database = {
      ...{ scope: '', holding },
      table: { nextTokens: () => tokens.shift() },
    } as unknown as AdvisoryDatabase;
    const settings = { sessionGuard: 30_000, fencing: true, family: postgres } as unknown as SqlSettings;
    const { signal } = new AbortController();
    const request = { key: 'k', id: '1', mode: 'exclusive', wait: 0, callers: 1, signal } as unknown as AcquireRequest;
    const attempt = new AdvisoryRequest(contextFor(), database, settings, request);
    const late = attempt.acquire();
    await next();
    await expect(late).rejects.toThrow('late');
    const again = attempt.acquire();
    // The unlock, and then the second lock.
    await next();
    await next();
    expect(await again).toMatchObject({ fencingToken: 5n });
    expect(ends).toEqual([]);
    const released = attempt.release();
    await next();
    expect(await released).toBe('released');
    expect(ends).toEqual(['given back']);
  });

  it('is opened one time for all its callers, who share a failure unless it is that of an impatient one', async () => {
    const { session } = scripted();
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

  it('is not busy for its process while the server is silent about an attempt that may have it', async () => {
    const [silent, other] = [scripted(), scripted()];
    const sessions = [silent.session];
    const take = async () => (sessions.shift() ?? other.session) as unknown as Session;
    const holding = new HoldingSessions({ take }, postgres.advisory, 2);
    const database = {
      ...{ scope: '', holding },
      table: { nextTokens: () => Promise.reject(new SilentServerError('late')) },
    } as unknown as AdvisoryDatabase;
    const settings = { sessionGuard: 30_000, fencing: true, family: postgres } as unknown as SqlSettings;
    const { signal } = new AbortController();
    const attempt = (id: string) => {
      const request = { key: 'k', id, mode: 'exclusive', wait: 0, callers: 1, signal } as unknown as AcquireRequest;
      return new AdvisoryRequest(contextFor(), database, settings, request);
    };
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

  it('frees a lock whose unlock was cancelled, and is used again', async () => {
    const { holding, next, session } = scripted();
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

  it('asks for many locks in one statement while another is in flight, and tells their callers apart', async () => {
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

  it('a lock is asked for again when its release has been executed, so that another process may get it between', async () => {
    const { holding, next, answers } = scripted();
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

  it('is not taken from a caller that asked for it after one whose statement was first late and then cancelled', async () => {
    const { holding, session } = scripted();
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
    // What the first statement has taken, if anything, ends with the session.
    expect(holding.mayHaveLock).toBe(true);
  });

  it('after a statement about several locks failed, it is not known which of them it has, and the session is not used again', async () => {
    const { holding, session } = scripted();
    session.run = () => Promise.reject(new Error('out of shared memory'));
    const asked = ['1', '2'].map((name) => holding.tryLock(name, 'exclusive'));
    for (const answer of asked) await expect(answer).rejects.toThrow('out of shared memory');
    expect(holding.isUsable).toBe(false);
  });
});
