import { type Entry, HELD, judged } from './hand-written.js';

describe('the rule that tokens grow', () => {
  /** Callers that asked together and hold one after the other, or together if they read. */
  function together(...holders: readonly { readonly token: string; readonly mode?: 'shared' }[]) {
    const callers = holders.map((holder, index) => ({ name: `w1/1.${index}.1`, holder, start: 10 + 10 * index }));
    const attempts = callers.map(({ name, holder }): Entry => [0, 'attempt', name, holder]);
    const sections = callers.flatMap(({ name, holder, start }): Entry[] => [
      [start, 'enter', name, { ...HELD, ...holder }],
      [start + 5, 'leave', name, { ...HELD, ...holder }],
      [start + 6, 'done', name, { result: 'released' }],
    ]);
    return judged([...attempts, ...sections]);
  }

  it('is broken by the same token twice, even if nobody had entered when both asked', async () => {
    expect((await together({ token: '7' }, { token: '7' })).violations).toEqual(['token']);
    expect((await together({ token: '7', mode: 'shared' }, { token: '7' })).violations).toEqual(['token']);
  });

  it('is broken by a smaller token', async () => {
    expect((await together({ token: '7' }, { token: '6' })).violations).toEqual(['token']);
    expect((await together({ token: '7' }, { token: '6', mode: 'shared' })).violations).toEqual(['token']);
  });

  it('is kept by growing tokens, and by readers that share tokens or enter in any order', async () => {
    expect((await together({ token: '7' }, { token: '8' }, { token: '10' })).violations).toEqual([]);
    const readers = ['8', '8', '7', '9'].map((token) => ({ token, mode: 'shared' as const }));
    expect((await together({ token: '6' }, ...readers, { token: '10' })).violations).toEqual([]);
  });

  it('is broken by a caller that asks after others have entered and is refused', async () => {
    const { violations } = await judged([
      [0, 'attempt', 'w1/1.0.1'],
      [1, 'enter', 'w1/1.0.1', { ...HELD, token: '7' }],
      [2, 'leave', 'w1/1.0.1', { ...HELD, token: '7' }],
      [3, 'attempt', 'w2/1.0.1'],
      [4, 'enter', 'w2/1.0.1', { ...HELD, token: '6', accepted: false }],
    ]);
    expect(violations).toContain('token');
  });
});
