import { HoldingSession } from '../../lib/providers/sql/advisory/holding-session.js';
import { postgresAdvisoryLocks } from '../../lib/providers/sql/advisory/advisory-statements.js';
import type { Session } from '../../lib/providers/sql/session.js';

/** A session whose statements are answered by hand: the server would give it whatever it has already. */
function scripted() {
  const answers: (() => void)[] = [];
  const ask = () => new Promise<unknown>((resolve) => answers.push(() => resolve([{ done: true }])));
  const ends: string[] = [];
  const session = {
    ...{ send: ask, run: ask, inTime: (answer: Promise<unknown>) => answer },
    giveBack: () => ends.push('given back'),
    destroy: () => ends.push('destroyed'),
  };
  const holding = new HoldingSession(session as unknown as Session, postgresAdvisoryLocks, () => {});
  const next = async () => {
    answers.shift()?.();
    await new Promise((resolve) => setImmediate(resolve));
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
});
