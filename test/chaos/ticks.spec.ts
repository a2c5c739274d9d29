import { type Entry, HELD, judged } from './hand-written.js';

const PERIOD = 1_000;
const JOBS = { period: PERIOD, afterCrash: 1, outageOver: 500 };
/** The clock of the machine at the begin of the history: ticks are due at 0, 1000, … ms of it. */
const WALL = 1_000_000;
const HEAD: Entry = [0, 'head', undefined, { wall: WALL }];
const QUIET: Entry = [8_500, 'quiet'];

/** A run that begins so many ms after its tick, and takes so long. */
function run(op: string, tick: number, { after = 10, takes = 5, attempt = 1 } = {}): Entry[] {
  const at = tick + after;
  return [
    [Math.max(0, tick - 100), 'attempt', op],
    [at, 'enter', op, { ...HELD, tick: WALL + tick, attempt }],
    [at + takes, 'done', op, { result: 'released' }],
  ];
}

/** Runs of the ticks 1000 to 8000, but some. */
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

describe('the rule that a tick is not begun twice', () => {
  it('is kept by runs of later ticks', async () => {
    expect(await violations(...all(), QUIET)).toEqual([]);
  });

  it('is broken by a second run, of the same process or another, and by one of an earlier tick', async () => {
    expect(await violations(...all(), ...run('w2/1.0.1', 3_000, { after: 100 }))).toEqual(['twice']);
    expect(await violations(...all(), ...run('w1/1.0.9', 2_000, { after: 1_500 }))).toEqual(['twice']);
  });

  it('is kept by runs that are begun again, at most so often', async () => {
    const again = (attempt: number) => run(`w2/1.0.${attempt}`, 8_000, { after: 100 * attempt, attempt });
    expect(await violations(...all(), ...again(2))).toEqual([]);
    expect(await violations(...all(), ...again(2), ...again(3))).toEqual(['twice']);
    expect(await violations(...all(), ...again(3))).toEqual(['twice']);
  });

  it('is excused where the server has forgotten the record since', async () => {
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

describe('the rule that each tick is begun', () => {
  it('is broken by a tick that nobody has begun', async () => {
    expect(await violations(...all(3), QUIET)).toEqual(['missed']);
    expect(await violations(...all(2, 3), QUIET)).toEqual(['missed', 'missed']);
  });

  it('says nothing of ticks before the first firing, at the end of a round, and between two rounds', async () => {
    expect(await violations(...all(1, 5, 6, 7, 8), QUIET)).toEqual([]);
    const next: Entry[] = [[18_600, 'attempt', 'w1/1.0.99'], ...run('w1/1.0.100', 20_000), [23_900, 'quiet']];
    expect(await violations(...all(), QUIET, ...next)).toEqual([]);
    const late: Entry = [8_501, 'attempt', 'w1/1.0.98'];
    expect(await violations(...all(), QUIET, late, ...next)).toEqual([]);
  });

  it('is kept where the tick was due during a run', async () => {
    const long = run('w1/1.0.2', 2_000, { takes: 1_300 });
    expect(await violations(...all(2, 3), ...long, QUIET)).toEqual([]);
  });

  it('is kept while a run that was abandoned waits to be begun again, and broken if that never happens', async () => {
    const [attempt, enter] = run('w1/1.0.2', 2_000) as [Entry, Entry];
    const killed: Entry[] = [attempt, enter, [2_100, 'gone', undefined, { worker: 'w1/1' }]];
    const others = [4, 5, 6, 7, 8].flatMap((each) => run(`w2/1.0.${each}`, each * 1_000));
    const again = run('w2/1.0.99', 2_000, { after: 1_300, attempt: 2 });
    const first = run('w1/1.0.1', 1_000);
    expect(await violations(...first, ...killed, ...again, ...others, QUIET)).toEqual([]);
    expect(await violations(...first, ...killed, ...others, QUIET)).toEqual(['missed']);
  });

  it('is kept during an outage of the server and broken during a fault of one worker', async () => {
    const fault = (of: string): Entry[] => [
      [2_700, 'begin', undefined, { fault: 'worker paused', of, target: 'w1' }],
      [2_800, 'end'],
    ];
    expect(await violations(...all(3), ...fault('server'), QUIET)).toEqual([]);
    expect(await violations(...all(3), ...fault('worker'), QUIET)).toEqual(['missed']);
  });
});
