import { describe, expect, it } from '@jest/globals';

// Plain JavaScript without types, as the programs are.
const FAULTS: string = '../../chaos/faults/index.mjs';

interface Process {
  readonly name: string;
  readonly life: number;
  readonly proxies: readonly { readonly clientPorts: readonly number[] }[];
}
interface Section {
  readonly key: string;
  readonly never?: string;
}

/** A fleet and a server that write down what is asked of them. `left` answers how many sessions a port still has. */
function recorded(left: (port: number) => number = () => 0) {
  const log: string[] = [];
  const records: object[] = [];
  const [worker, holder] = ['w1', 'w2'].map((name) => ({ name, life: 1, proxies: [] }));
  const extra = (index: number): Process => ({
    name: `w1/x${index}`,
    life: 1,
    proxies: [{ clientPorts: [index] }],
  });
  const fleet = {
    members: [worker, holder],
    startBeside: (_: Process, count: number) => {
      log.push('start');
      return Promise.resolve(Array.from({ length: count }, (_, index) => extra(index + 1)));
    },
    send(member: Process, type: string, { section, sections = [] }: { section?: Section; sections?: Section[] } = {}) {
      const never = sections.some((each) => each.never === 'LOCK_BUSY') ? ' never busy' : '';
      log.push(`${type} ${member.name}${section ? ` ${section.key}` : ''}${never}`);
    },
    kill: ({ name }: Process) => Promise.resolve(void log.push(`kill ${name}`)),
    remove: () => Promise.resolve(void log.push('remove')),
    drain: () => Promise.resolve(void log.push('drain')),
    nextRelease: ({ name }: Process) => Promise.resolve(log.push(`release ${name}`) > 0),
  };
  const server = {
    sessionsOf: ([port = 0]: readonly number[]) => Promise.resolve(left(port)),
    async cancelStatements(_: unknown, times: number, moment: () => Promise<boolean>) {
      for (let time = 0; time < times && (await moment()); time += 1) log.push('cancel');
    },
  };
  const resource = { record: (entry: object) => Promise.resolve(void records.push(entry)) };
  const random = { pick: <T>([first]: readonly T[]) => first, chance: () => false };
  const context = { subject: { sessionsEndWithin: 100, recovery: 100 }, fleet, worker, server, resource, random };
  return { log, records, context };
}

async function begin(name: string, context: object) {
  const { faults } = (await import(FAULTS)) as { faults: Map<string, { begin(context: object): Promise<void> }> };
  await faults.get(name)!.begin(context);
}

describe('the fault that kills waiters', () => {
  const events = [
    ...['hold w2 held:w1', 'start', 'add w1/x1', 'add w1/x2', 'add w1'],
    ...['kill w1/x1', 'kill w1/x2', 'letGo w2', 'remove'],
  ];

  it('records that the server has ended the sessions of all of them, while the lock is still held', async () => {
    const { log, records, context } = recorded();
    await begin('waiters killed', context);
    expect(log).toEqual(events);
    expect(records).toEqual([
      { event: 'sessions', of: 'w1/x1/1', sessions: 0 },
      { event: 'sessions', of: 'w1/x2/1', sessions: 0 },
    ]);
  });

  it('records the sessions that the server keeps for longer than it may', async () => {
    const { log, records, context } = recorded((port) => (port === 2 ? 3 : 0));
    const begunAt = performance.now();
    await begin('waiters killed', context);
    expect(performance.now() - begunAt).toBeGreaterThan(context.subject.sessionsEndWithin);
    expect(log).toEqual(events);
    expect(records).toEqual([
      { event: 'sessions', of: 'w1/x1/1', sessions: 0 },
      { event: 'sessions', of: 'w1/x2/1', sessions: 3 },
    ]);
  });
});

describe('the fault that cancels statements', () => {
  it('cancels at releases, and asks for the lock when nobody holds it', async () => {
    const { log, context } = recorded();
    await begin('statements cancelled', context);
    const [races, end] = [log.slice(0, log.indexOf('drain')), log.slice(log.indexOf('drain'))];
    expect(races.slice(0, 5)).toEqual(['start', 'run w1/x1', 'run w1/x2', 'release w1/x1', 'cancel']);
    expect(end).toEqual(['drain', 'release w1', 'add w1 never busy', 'remove']);
  });
});
