import { pause, withTimeout } from '../../lib/core/toolkit/timing.js';
import { FakeClock } from '../../lib/testing/fake-clock.js';

const never = new Promise<string>(() => undefined);

describe('withTimeout', () => {
  it('gives what the work gives, and leaves no timer', async () => {
    const clock = new FakeClock();
    expect(await withTimeout(clock, 100, Promise.resolve('done'))).toBe('done');
    await expect(withTimeout(clock, 100, Promise.reject(new Error('failed')))).rejects.toThrow('failed');
    expect(clock.pendingTimers).toBe(0);
  });

  it('gives up a work that is late: undefined, or what the caller wants instead', async () => {
    const clock = new FakeClock();
    const fail = () => {
      throw new Error('late');
    };
    const outcomes = Promise.allSettled([
      withTimeout(clock, 100, never),
      withTimeout(clock, 100, never, () => 'late'),
      withTimeout(clock, 100, never, fail),
    ]);
    await clock.advance(100);
    expect(await outcomes).toEqual([
      { status: 'fulfilled', value: undefined },
      { status: 'fulfilled', value: 'late' },
      { status: 'rejected', reason: new Error('late') },
    ]);
  });

  it('does not call for what comes instead of a work that was in time', async () => {
    const clock = new FakeClock();
    let calls = 0;
    await withTimeout(clock, 100, Promise.resolve(), () => (calls += 1));
    await clock.advance(200);
    expect(calls).toBe(0);
  });
});

describe('pause', () => {
  it('ends with its time, with its signal, or immediately if that has aborted', async () => {
    const clock = new FakeClock();
    const caller = new AbortController();
    const ends: string[] = [];
    void pause(clock, 100, caller.signal).then(() => ends.push('time'));
    void pause(clock, 500, caller.signal, true).then(() => ends.push('signal'));
    await clock.advance(100);
    expect(ends).toEqual(['time']);
    caller.abort();
    await clock.advance(0);
    expect(ends).toEqual(['time', 'signal']);
    await pause(clock, 500, caller.signal);
    expect(clock.pendingTimers).toBe(0);
  });
});
