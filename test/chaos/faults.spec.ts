// Plain JavaScript without types, like the programs.
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

/** A fleet and a server that record the calls they receive. `left` returns how many sessions a port still has. */
function recorded(left: (port: number) => number = () => 0) {
  const log: string[] = [];
  const records: object[] = [];
  const proxyOf = (name: string) => ({
    leadTo: (port: number) => void log.push(`${name} leads to ${port}`),
    resetAll: () => void log.push(`${name} is reset`),
  });
  const [worker, holder] = ['w1', 'w2'].map((name) => ({ name, life: 1, proxies: [proxyOf(name)] }));
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
    port: 7,
    makeReadOnly: () => Promise.resolve(void log.push('read-only')),
    cutOffReplica: () => void log.push('cut off'),
    killWriter: () => Promise.resolve(void log.push('kill')),
    promote: () => Promise.resolve(void log.push('promote')),
    replaceOld: () => Promise.resolve(void log.push('replace')),
  };
  const resource = { record: (entry: object) => Promise.resolve(void records.push(entry)) };
  const random = { pick: <T>([first]: readonly T[]) => first, chance: () => false };
  const context = {
    subject: { sessionsEndWithin: 100, recovery: 100, lifetime: 100 },
    fleet,
    worker,
    server,
    resource,
    random,
  };
  return { log, records, context };
}

interface Fault {
  prepare?(context: object): Promise<void>;
  begin(context: object): Promise<void>;
}

async function load(name: string) {
  const { faults } = (await import(FAULTS)) as { faults: Map<string, Fault> };
  return faults.get(name)!;
}

async function begin(name: string, context: object) {
  await (await load(name)).begin(context);
}

describe('fault: waiters killed', () => {
  const events = [
    ...['hold w2 held:w1', 'start', 'add w1/x1', 'add w1/x2', 'add w1'],
    ...['kill w1/x1', 'kill w1/x2', 'letGo w2', 'remove'],
  ];

  it('records that the server ended all their sessions while the lock is still held', async () => {
    const { log, records, context } = recorded();
    await begin('waiters killed', context);
    expect(log).toEqual(events);
    expect(records).toEqual([
      { event: 'sessions', of: 'w1/x1/1', sessions: 0 },
      { event: 'sessions', of: 'w1/x2/1', sessions: 0 },
    ]);
  });

  it('records sessions that the server keeps for too long', async () => {
    const { log, records, context } = recorded((port) => (port === 2 ? 3 : 0));
    const startedAt = performance.now();
    await begin('waiters killed', context);
    expect(performance.now() - startedAt).toBeGreaterThan(context.subject.sessionsEndWithin);
    expect(log).toEqual(events);
    expect(records).toEqual([
      { event: 'sessions', of: 'w1/x1/1', sessions: 0 },
      { event: 'sessions', of: 'w1/x2/1', sessions: 3 },
    ]);
  });
});

describe('fault: statements cancelled', () => {
  it('cancels at releases, and acquires the lock once it is free', async () => {
    const { log, context } = recorded();
    await begin('statements cancelled', context);
    const [races, end] = [log.slice(0, log.indexOf('drain')), log.slice(log.indexOf('drain'))];
    expect(races.slice(0, 5)).toEqual(['start', 'run w1/x1', 'run w1/x2', 'release w1/x1', 'cancel']);
    expect(end).toEqual(['drain', 'release w1', 'add w1 never busy', 'remove']);
  });
});

describe('fault: switchover', () => {
  const competition = [...['w1 leads to 7', 'w2 leads to 7', 'w1 is reset', 'add w1', 'letGo w2'], ...['replace']];

  it.each([
    ['graceful switchover', ['hold w2 switched:w1', 'read-only'], ['promote', ...competition]],
    ['cut-off standby promoted', ['cut off', 'hold w2 switched:w1'], ['kill', 'promote', ...competition]],
  ])('begins when its locks are lost, and makes another worker compete: %s', async (name, prepared, rest) => {
    const { log, context } = recorded();
    const fault = await load(name);
    await fault.prepare?.(context);
    expect(log).toEqual(prepared);
    await fault.begin(context);
    expect(log.slice(prepared.length)).toEqual(rest);
  });
});
