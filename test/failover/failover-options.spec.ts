import type { Member } from '../../lib/api/lock-provider.js';
import { LockConfigError } from '../../lib/api/errors.js';
import { FailoverProvider } from '../../lib/providers/failover/failover-provider.js';
import type { FailoverProviderOptions } from '../../lib/providers/failover/failover-options.js';
import { TestFleet } from './fleet-rig.js';

const TWO = { engines: ['a', 'b'], record: 'record' };

describe('what a FailoverProvider is made of', () => {
  it.each<[string, FailoverProviderOptions]>([
    ['"engines" names a, but must name at least two', { ...TWO, engines: ['a'] }],
    ['"engines" names a, a, but must name at least two', { ...TWO, engines: ['a', 'a'] }],
    [`mode 'strict' needs a "record"`, { engines: ['a', 'b'] }],
    [`"record" means nothing in mode 'available'`, { ...TWO, mode: 'available' }],
    [`"mode" is 'loose'`, { ...TWO, mode: 'loose' as 'strict' }],
    ['"failures" is 0', { ...TWO, failures: 0 }],
    ['Option "window" is', { ...TWO, window: 999 }],
    ['Option "probeEvery" is', { ...TWO, probeEvery: 'soon' }],
    // With the jitter and the margin of the clocks, timers would run for longer than the 24.8 days of Node's.
    [`Option "probeEvery" is '24d', but must be a duration of 10 ms to 1 day`, { ...TWO, probeEvery: '24d' }],
    [`Option "window" is '24.8d', but must be a duration of 1000 ms to 1 day`, { ...TWO, window: '24.8d' }],
    ['"engines" must be a list', { record: 'record' } as FailoverProviderOptions],
    ['"engines" must be a list', { ...TWO, engines: 'ab' as never }],
    ['"engines" must be a list', { ...TWO, engines: ['a', undefined as never] }],
    ['"record" must be the name', { ...TWO, record: {} as never }],
  ])('is refused: %s', (message, options) => {
    expect(() => new FailoverProvider(options)).toThrow(LockConfigError);
    expect(() => new FailoverProvider(options)).toThrow(message);
  });

  it('is refused with a record on a provider that may lose it', () => {
    expect(() => new TestFleet().add({ record: 'a' })).toThrow(
      'FailoverProvider cannot keep its "record" on lock provider "a", which may lose what it has acknowledged',
    );
  });

  it('is refused with a lease that an engine cannot keep', () => {
    const brief = { capabilities: { maxLease: 10_000 }, records: {} } as unknown as Member;
    const members = new Map(['a', 'b', 'record'].map((name) => [name, brief]));
    expect(() => new FailoverProvider(TWO).compose(members)).toThrow(
      'FailoverProvider: "lease" is 30000 ms, longer than "maxLease" of lock provider "a", which is 10000 ms',
    );
    expect(() => new FailoverProvider({ ...TWO, lease: '10s' }).compose(members)).not.toThrow();
  });

  it('is refused in mode strict on another one in mode strict, whose tokens have no room for a second epoch', () => {
    const nested = (outer: Partial<FailoverProviderOptions>, inner: Partial<FailoverProviderOptions> = {}) => {
      const fleet = new TestFleet();
      const below = new FailoverProvider({ ...TWO, ...inner });
      return () => fleet.add({ engines: ['below', 'c'], ...outer }, { below, c: fleet.newEngine() });
    };
    expect(nested({})).toThrow(LockConfigError);
    expect(nested({})).toThrow(
      'FailoverProvider of below, c: mode \'strict\' cannot stand on lock provider "below", whose fencing tokens take more than 52 bits',
    );
    // Where either of them gives no tokens, none has to fit.
    expect(nested({ mode: 'available' })).not.toThrow();
    expect(nested({}, { mode: 'available', record: undefined as never })).not.toThrow();
  });

  it('is not used without its members', () => {
    expect(() => new FailoverProvider(TWO).capabilities).toThrow('name them beside it in "providers"');
    expect(() => new FailoverProvider(TWO).state).toThrow('was used before it was started');
  });

  it('warns of a record that goes down with an engine', async () => {
    const fleet = new TestFleet();
    const { log } = await fleet.start({ engines: ['a', 'record'] });
    expect(log).toContain(
      'Lock provider "main": losing "record" stops all locks, since the record is kept there too: name a third provider as "record" to survive the loss of any one.',
    );
    await fleet.stop();
  });

  it('says which engine takes a feature from all of them', async () => {
    const fleet = new TestFleet();
    const weak = Object.assign(fleet.newEngine(), {});
    Object.assign(weak, { capabilities: { ...weak.capabilities, shared: false, fencing: false } });
    const { log, main } = await fleet.start({ engines: ['a', 'weak'] }, { weak });
    expect(main.capabilities).toMatchObject({ shared: false, fencing: false });
    expect(log).toContain('Lock provider "main": there are no shared locks on any engine, since "weak" has none.');
    expect(log).toContain('Lock provider "main": there are no fencing tokens on any engine, since "weak" has none.');
    await fleet.stop();
  });
});
