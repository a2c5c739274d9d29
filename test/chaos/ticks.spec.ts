import { type Entry, HELD, judged } from './hand-written.js';

const PERIOD = 1_000;
const JOBS = { period: PERIOD, afterCrash: 1, outageOver: 500 };
/** What the machine's clock shows at the beginning of the history: ticks are due at 0, 1000, … ms of the history. */
const WALL = 1_000_000;
const HEAD: Entry = [0, 'head', undefined, { wall: WALL }];
const QUIET: Entry = [8_500, 'quiet'];

/** A run that starts `after` ms after its tick and takes `takes` ms. */
function run(op: string, tick: number, { after = 10, takes = 5, attempt = 1 } = {}): Entry[] {
  const at = tick + after;
  return [
    [Math.max(0, tick - 100), 'attempt', op],
    [at, 'enter', op, { ...HELD, tick: WALL + tick, attempt }],
    [at + takes, 'done', op, { result: 'released' }],
  ];
}

/** Runs for the ticks 1000 to 8000, without the missing ones. */
const all = (...missing: number[]) =>
  [1, 2, 3, 4, 5, 6, 7, 8]
    .filter((each) => !missing.includes(each))
    .flatMap((each) => run(`w1/1.0.${each}`, each * 1_000));

async function verdict(history: readonly Entry[], subject: object = {}) {
  return await judged(
    history.toSorted(([one], [other]) => one - other),
    { jobs: JOBS, ...subject },
  );
}
const violations = async (...history: Entry[]) => (await verdict([HEAD, ...history])).violations;

describe('rule: no tick runs twice', () => {
  it('accepts runs of later ticks', async () => {
    expect(await violations(...all(), QUIET)).toEqual([]);
  });

  it('reports a second run, and a run of an earlier tick', async () => {
    expect(await violations(...all(), ...run('w2/1.0.1', 3_000, { after: 100 }))).toEqual(['twice']);
    expect(await violations(...all(), ...run('w1/1.0.9', 2_000, { after: 1_500 }))).toEqual(['twice']);
  });

  it('accepts restarted runs up to the allowed number of attempts', async () => {
    const again = (attempt: number) => run(`w2/1.0.${attempt}`, 8_000, { after: 100 * attempt, attempt });
    expect(await violations(...all(), ...again(2))).toEqual([]);
    expect(await violations(...all(), ...again(2), ...again(3))).toEqual(['twice']);
    expect(await violations(...all(), ...again(3))).toEqual(['twice']);
  });

  it('is excused if the server has lost the record since', async () => {
    const second = run('w2/1.0.1', 3_000, { after: 900 });
    const fault = (name: string): Entry[] => [
      [3_500, 'begin', undefined, { fault: name, of: 'server' }],
      [3_510, 'end'],
    ];
    const allows = { FLUSHALL: ['twice'] };
    const forgotten = await verdict([HEAD, ...all(), ...second, ...fault('FLUSHALL')], { allows });
    expect(forgotten).toMatchObject({ violations: [], excused: ['twice'] });
    const kept = await verdict([HEAD, ...all(), ...second, ...fault('server paused')], { allows });
    expect(kept).toMatchObject({ violations: ['twice'], excused: [] });
    const before = await verdict([HEAD, ...fault('FLUSHALL'), ...all(), ...run('w2/1.0.1', 7_000, { after: 900 })], {
      allows,
    });
    expect(before).toMatchObject({ violations: ['twice'], excused: [] });
  });
});

describe('rule: no tick is missed', () => {
  it('reports a tick that was not started', async () => {
    expect(await violations(...all(3), QUIET)).toEqual(['missed']);
    expect(await violations(...all(2, 3), QUIET)).toEqual(['missed', 'missed']);
  });

  it('ignores ticks before the first firing, at the end of a round, and between rounds', async () => {
    expect(await violations(...all(1, 5, 6, 7, 8), QUIET)).toEqual([]);
    const next: Entry[] = [[18_600, 'attempt', 'w1/1.0.99'], ...run('w1/1.0.100', 20_000), [23_900, 'quiet']];
    expect(await violations(...all(), QUIET, ...next)).toEqual([]);
    const late: Entry = [8_501, 'attempt', 'w1/1.0.98'];
    expect(await violations(...all(), QUIET, late, ...next)).toEqual([]);
  });

  it('accepts a missing tick that was due during a run', async () => {
    const long = run('w1/1.0.2', 2_000, { takes: 1_300 });
    expect(await violations(...all(2, 3), ...long, QUIET)).toEqual([]);
  });

  it('accepts missing ticks while an abandoned run waits to be restarted, and reports them if that never happens', async () => {
    const [attempt, enter] = run('w1/1.0.2', 2_000) as [Entry, Entry];
    const killed: Entry[] = [attempt, enter, [2_100, 'gone', undefined, { worker: 'w1/1' }]];
    const others = [4, 5, 6, 7, 8].flatMap((each) => run(`w2/1.0.${each}`, each * 1_000));
    const again = run('w2/1.0.99', 2_000, { after: 1_300, attempt: 2 });
    const first = run('w1/1.0.1', 1_000);
    expect(await violations(...first, ...killed, ...again, ...others, QUIET)).toEqual([]);
    expect(await violations(...first, ...killed, ...others, QUIET)).toEqual(['missed']);
  });

  it('accepts a missing tick during a server outage, and reports one during a fault of one worker', async () => {
    const fault = (of: string): Entry[] => [
      [2_700, 'begin', undefined, { fault: 'worker paused', of, target: 'w1' }],
      [2_800, 'end'],
    ];
    expect(await violations(...all(3), ...fault('server'), QUIET)).toEqual([]);
    expect(await violations(...all(3), ...fault('worker'), QUIET)).toEqual(['missed']);
  });
});
