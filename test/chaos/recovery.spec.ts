import { type Entry, HELD, judged } from './hand-written.js';

describe('the time to recover from a fault', () => {
  const section = (at: number, key: string, token: number): readonly Entry[] => {
    const about = { key, token: String(token) };
    const caller = `w1/1.0.${at}`;
    return [
      [at, 'attempt', caller, about],
      [at + 1, 'enter', caller, { ...HELD, ...about }],
      [at + 2, 'leave', caller, { ...HELD, ...about }],
      [at + 3, 'done', caller, { ...about, result: 'released' }],
    ];
  };
  const fault: readonly Entry[] = [
    ...section(0, 'a', 1),
    ...section(10, 'b', 1),
    [20, 'begin', undefined, { fault: 'none', of: 'server' }],
    [30, 'end'],
  ];

  it('ends when the last key has been entered', async () => {
    const { recoveries } = await judged([
      ...fault,
      ...section(40, 'a', 2),
      ...section(99, 'b', 2),
      ...section(200, 'a', 3),
    ]);
    expect(recoveries).toEqual([70]);
  });

  it('is not known when another fault or the end of the round comes before', async () => {
    const next: Entry = [50, 'begin', undefined, { fault: 'none', of: 'server' }];
    expect((await judged([...fault, ...section(40, 'a', 2), next, ...section(99, 'b', 2)])).recoveries[0]).toBe(
      undefined,
    );
    expect(
      (await judged([...fault, ...section(40, 'a', 2), [50, 'quiet'], ...section(99, 'b', 2)])).recoveries,
    ).toEqual([undefined]);
  });
});
