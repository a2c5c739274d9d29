import { LockTable } from '../../lib/providers/memory/lock-table.js';
import { conformanceCases, FakeClock, type ProviderHarness } from '../../lib/testing/index.js';
import * as holds from './broken/holds.js';
import * as leases from './broken/leases.js';
import * as queues from './broken/queues.js';
import * as surroundings from './broken/surroundings.js';
import { DistantMemoryProvider, MemoryBackend } from './memory-backend.js';

interface Mutant {
  readonly fault: string;
  readonly provider: new (table: LockTable) => DistantMemoryProvider;
  /** The cases that must fail. Others may fail too. */
  readonly caughtBy: readonly string[];
}

const MUTANTS: readonly Mutant[] = [
  { fault: 'a release frees the lock of another', provider: holds.FreesAnybody, caughtBy: ['#5', '#6', '#6b', '#S3'] },
  { fault: 'a release of nothing answers released', provider: holds.AlwaysReleased, caughtBy: ['#5', '#6', '#S3'] },
  { fault: 'a release does nothing', provider: holds.ForgetsToRelease, caughtBy: ['#3', '#7', '#9'] },
  { fault: 'everybody is admitted', provider: holds.AdmitsEverybody, caughtBy: ['#1', '#9', '#10', '#11'] },
  {
    fault: 'shared is claimed and readers exclude each other',
    provider: holds.ReadersExcludeEachOther,
    caughtBy: ['#57a', '#11'],
  },
  { fault: 'tokens start anew with each provider', provider: holds.RestartsTokens, caughtBy: ['#35', '#35b', '#11'] },
  { fault: 'a renewal takes the lock again', provider: leases.ReacquiresOnRenewal, caughtBy: ['#S6', '#S7'] },
  {
    fault: 'the renewals of one tick all get the outcome of the first',
    provider: leases.OneOutcomeForAllRenewals,
    caughtBy: ['#S9'],
  },
  { fault: 'a renewal is confirmed and not made', provider: leases.NeverRenews, caughtBy: ['#22', '#S8'] },
  { fault: 'an abort leaves its place in the queue', provider: queues.StaysInTheQueue, caughtBy: ['#16', '#S10'] },
  { fault: 'an abort is answered late', provider: queues.AnswersAnAbortLate, caughtBy: ['#S10'] },
  { fault: 'a grant that meets an abort is dropped', provider: queues.LeaksWhatIsGrantedAtTheAbort, caughtBy: ['#17'] },
  { fault: 'waiters are not told to be queued', provider: queues.QueuesWithoutSayingSo, caughtBy: ['#20', '#13'] },
  { fault: 'fair is claimed and the last comes first', provider: queues.LastComeFirstServed, caughtBy: ['#20'] },
  {
    fault: 'minHold is claimed and released keys are free',
    provider: holds.FreesParkedKeys,
    caughtBy: ['#57d', '#57i', '#57j'],
  },
  { fault: 'minHold is claimed and ends in a crash', provider: holds.ForgetsMinHoldInACrash, caughtBy: ['#57e'] },
  { fault: 'asking again prolongs', provider: leases.ProlongsWhenAskedAgain, caughtBy: ['#S1', '#S2'] },
  { fault: 'a failed attempt prolongs', provider: leases.FailedAttemptsProlong, caughtBy: ['#4'] },
  { fault: 'a holder that asks again is busy', provider: holds.SameIdTwice, caughtBy: ['#S1'] },
  { fault: 'the deadline is later than that of the backend', provider: leases.BelievesTooLong, caughtBy: ['#21'] },
  { fault: 'grants are over when they arrive', provider: leases.GrantsWhatIsOver, caughtBy: ['#5'] },
  {
    fault: 'leases of their own are claimed and all are alike',
    provider: leases.OneLeaseForAll,
    caughtBy: ['#21', '#57c'],
  },
  { fault: 'a backend that is down is busy', provider: surroundings.UnavailableIsBusy, caughtBy: ['#53'] },
  {
    fault: 'a renewal that is not answered is lost',
    provider: surroundings.UnansweredIsLost,
    caughtBy: ['#29', '#53b'],
  },
  { fault: 'an outage is for ever', provider: surroundings.NeverRecovers, caughtBy: ['#54'] },
  { fault: 'holder ids are logged', provider: holds.TellsHolders, caughtBy: ['#S13'] },
  { fault: 'the constructor starts timers', provider: surroundings.TimersInTheConstructor, caughtBy: ['#S14'] },
  { fault: 'stop leaves a timer', provider: surroundings.TimerThatStays, caughtBy: ['#S15'] },
  { fault: 'each lock leaves a record', provider: surroundings.KeepsARecordOfEachLock, caughtBy: ['#55'] },
  { fault: 'the namespace is ignored', provider: surroundings.NoNamespace, caughtBy: ['#48'] },
  { fault: 'case is ignored', provider: surroundings.renamed((key) => key.toLowerCase()), caughtBy: ['#44'] },
  { fault: 'blanks at the end are ignored', provider: surroundings.renamed((key) => key.trimEnd()), caughtBy: ['#43'] },
  { fault: 'accents are ignored', provider: surroundings.renamed((key) => key.normalize('NFC')), caughtBy: ['#43'] },
  { fault: 'keys are cut', provider: surroundings.renamed((key) => key.slice(0, 128)), caughtBy: ['#45'] },
  {
    fault: 'a prefix is the same key',
    provider: surroundings.renamed((key) => key.split(':')[0] ?? key),
    caughtBy: ['#2'],
  },
  {
    fault: 'fencing is not claimed and there are tokens',
    provider: surroundings.withCapabilities({ fencing: false }),
    caughtBy: ['#57h'],
  },
  {
    fault: 'asks of an outage are sent again after it',
    provider: surroundings.SendsAsksAgainAfterAnOutage,
    caughtBy: ['#S5'],
  },
  { fault: 'the end of a lease wakes nobody', provider: leases.OverlooksTheEndOfLeases, caughtBy: ['#21b'] },
  { fault: 'a lock that is handed over has another lease', provider: leases.LongLeasesForWaiters, caughtBy: ['#24'] },
  { fault: 'operators are shown holder ids', provider: holds.ShowsHolders, caughtBy: ['#S13'] },
  { fault: 'forceRelease is claimed and does nothing', provider: holds.ForceReleasesNothing, caughtBy: ['#57f'] },
];

function harnessOf(provider: Mutant['provider']): ProviderHarness {
  const backend = new MemoryBackend(new LockTable());
  const create = () => new provider(backend.table);
  return { ...backend.harness(), capabilities: create().capabilities, create, clock: new FakeClock() };
}

async function run(id: string, harness: ProviderHarness): Promise<void> {
  const wanted = conformanceCases(harness).find((each) => each.id === id);
  if (!wanted || wanted.notRun !== undefined) throw new Error(`Case ${id} does not run here`);
  return wanted.run();
}

describe('the conformance kit catches a provider where', () => {
  afterAll(() => {
    surroundings.TimersInTheConstructor.clear();
  });

  for (const { fault, provider, caughtBy } of MUTANTS) {
    it.each(caughtBy)(
      `${fault} (%s)`,
      async (id) => {
        await run(id, harnessOf(DistantMemoryProvider));
        await expect(run(id, harnessOf(provider))).rejects.toThrow();
      },
      30_000,
    );
  }

  it('the capabilities are not those of its harness (#57)', async () => {
    const harness = harnessOf(DistantMemoryProvider);
    const capabilities = { ...harness.capabilities, forceRelease: false };
    await expect(run('#57', { ...harness, capabilities })).rejects.toThrow();
  });
});
