import { LockConfigError } from '../../lib/api/errors.js';
import type { LockProvider } from '../../lib/api/lock-provider.js';
import { FailoverLockProvider } from '../../lib/providers/failover/failover-lock-provider.js';
import type { FailoverLockProviderOptions } from '../../lib/providers/failover/failover-options.js';
import { ScriptedProvider } from '../core/scripted-provider.js';
import { TestFleet } from './fleet-rig.js';

const TWO = { providers: ['a', 'b'], casStore: 'record' };
const old = (options: object) => ({ ...TWO, ...options }) as FailoverLockProviderOptions;

describe('the options of a FailoverLockProvider', () => {
  it.each<[string, FailoverLockProviderOptions]>([
    ['"providers" is a, but must name at least two', { ...TWO, providers: ['a'] }],
    ['"providers" is a, a, but must name at least two', { ...TWO, providers: ['a', 'a'] }],
    ['must be the name of the lock provider', { providers: ['a', 'b'] } as never],
    ['must be the name of the lock provider', { ...TWO, casStore: {} as never }],
    ['FailoverLockProvider: "window" is', { ...TWO, window: 999 }],
    // With jitter and clock margins, timers would exceed Node's limit of 24.8 days.
    [`"window" is '24.8d', but must be a duration of 1000 ms to 1 day`, { ...TWO, window: '24.8d' }],
    ['must be a list of lock provider names', { casStore: 'record' } as FailoverLockProviderOptions],
    ['must be a list of lock provider names', { ...TWO, providers: 'ab' as never }],
    ['must be a list of lock provider names', { ...TWO, providers: ['a', undefined as never] }],
    ['there is no option "provider": write "providers"', old({ provider: ['a', 'b'] })],
    ['there is no option "mode": remove it', old({ mode: 'available' })],
  ])('are rejected: %s', (message, options) => {
    expect(() => new FailoverLockProvider(options)).toThrow(LockConfigError);
    expect(() => new FailoverLockProvider(options)).toThrow(message);
  });

  it('are rejected if the record is on a provider that may lose it', () => {
    expect(() => new TestFleet().add({ casStore: 'a' })).toThrow(LockConfigError);
    expect(() => new TestFleet().add({ casStore: 'a' })).toThrow(
      'FailoverLockProvider cannot use lock provider "a" as "casStore", because it can lose acknowledged writes',
    );
  });

  it('are rejected if a provider cannot keep a lease as long as the window requires', () => {
    const made = (maxLease: number, window: string) => () =>
      new TestFleet().add(
        { providers: ['brief', 'b'], window },
        {
          brief: new ScriptedProvider({ maxLease }),
        },
      );
    expect(made(10_000, '6s')).toThrow(
      'FailoverLockProvider keeps locks for 12000 ms (twice "window", at least 10 s), which exceeds "maxLease" of lock provider "brief" (10000 ms)',
    );
    expect(made(9_999, '1s')).toThrow('FailoverLockProvider keeps locks for 10000 ms');
    expect(made(12_000, '6s')).not.toThrow();
  });

  it('are rejected for a nested failover, whose tokens have no room for a second epoch', () => {
    const nested = (others: Readonly<Record<string, LockProvider>> = {}) => {
      const fleet = new TestFleet();
      const below = new FailoverLockProvider({ ...TWO, providers: ['a', ...Object.keys(others), 'b'] });
      return () => fleet.add({ providers: ['below', 'c'] }, { below, c: fleet.newProvider(), ...others });
    };
    expect(nested()).toThrow(LockConfigError);
    expect(nested()).toThrow(
      'FailoverLockProvider of below, c cannot use lock provider "below", because fencing tokens',
    );
    // Without fencing tokens, there is nothing to fit.
    expect(nested({ bare: new ScriptedProvider({ fencing: false }) })).not.toThrow();
  });

  it('cause a warning if the record is lost together with a provider', async () => {
    const fleet = new TestFleet();
    const { log } = await fleet.start({ providers: ['a', 'record'] });
    expect(log).toContain(
      'Lock provider "main": If "record" is lost, no locks can be acquired, because it also stores the record. To survive the loss of any provider, use a third one as "casStore".',
    );
    await fleet.stop();
  });

  it('cause a warning that names the provider whose lack of a feature removes it for all', async () => {
    const fleet = new TestFleet();
    const weak = ScriptedProvider.obliging({ shared: false, fencing: false });
    const { log, main } = await fleet.start({ providers: ['a', 'weak'] }, { weak });
    expect(main.capabilities).toMatchObject({ shared: false, fencing: false });
    expect(log).toContain(
      'Lock provider "main": No provider offers shared locks, because they are not supported by "weak".',
    );
    expect(log).toContain(
      'Lock provider "main": No provider offers fencing tokens, because they are not supported by "weak".',
    );
    await fleet.stop();
  });
});
