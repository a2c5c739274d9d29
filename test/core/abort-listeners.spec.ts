import { withAbort } from '../../lib/core/toolkit/abort-listeners.js';

describe('withAbort', () => {
  it('calls once, while the work goes on', async () => {
    const caller = new AbortController();
    let calls = 0;
    const count = () => (calls += 1);
    const done = await withAbort(caller.signal, count, () => {
      caller.abort();
      return Promise.resolve('done');
    });
    expect([done, calls]).toEqual(['done', 1]);
  });

  it('calls before the work where the signal has aborted, and not after the work', async () => {
    const calls: string[] = [];
    const call = () => calls.push('aborted');
    const work = () => Promise.resolve(calls.push('work'));
    await withAbort(AbortSignal.abort(), call, work);
    const caller = new AbortController();
    await withAbort(caller.signal, call, work);
    caller.abort();
    expect(calls).toEqual(['aborted', 'work', 'work']);
  });
});
