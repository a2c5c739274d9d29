import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { conformanceCases, type ProviderHarness } from '../../lib/provider-kit/index.js';
import { FakeClock } from '../../lib/testing/index.js';
import * as locks from './broken/locks.js';
import * as records from './broken/records.js';
import { DistantBackend, MemoryServer } from './memory-server.js';

interface Mutant {
  readonly fault: string;
  readonly backend: typeof DistantBackend;
  /** The cases that must fail. Others may fail too. */
  readonly caughtBy: readonly string[];
}

const MUTANTS: readonly Mutant[] = [
  { fault: 'a release frees the lock of another', backend: locks.FreesAnybody, caughtBy: ['#5', '#6', '#6b', '#S3'] },
  { fault: 'a release of nothing answers released', backend: locks.AlwaysReleased, caughtBy: ['#5', '#6', '#S3'] },
  { fault: 'a release does nothing', backend: locks.ForgetsToRelease, caughtBy: ['#3', '#7', '#9'] },
  { fault: 'ordered is claimed and a release is overtaken', backend: locks.ReleasesLater, caughtBy: ['#57k'] },
  { fault: 'everybody is admitted', backend: locks.AdmitsEverybody, caughtBy: ['#1', '#10', '#11'] },
  {
    fault: 'shared is claimed and readers exclude each other',
    backend: locks.ReadersExcludeEachOther,
    caughtBy: ['#57a', '#11'],
  },
  { fault: 'tokens start anew with each provider', backend: locks.RestartsTokens, caughtBy: ['#35', '#35b', '#11'] },
  { fault: 'a renewal takes the lock again', backend: locks.ReacquiresOnRenewal, caughtBy: ['#S6', '#S7'] },
  {
    fault: 'the renewals of one tick all get the outcome of the first',
    backend: locks.OneOutcomeForAllRenewals,
    caughtBy: ['#S9'],
  },
  { fault: 'a renewal is confirmed and not made', backend: locks.NeverRenews, caughtBy: ['#22', '#S8'] },
  { fault: 'an abort leaves its place in the queue', backend: locks.StaysInTheQueue, caughtBy: ['#S10'] },
  { fault: 'an abort is answered late', backend: locks.AnswersAnAbortLate, caughtBy: ['#S10'] },
  { fault: 'a grant that meets an abort is dropped', backend: locks.LeaksWhatIsGrantedAtTheAbort, caughtBy: ['#17'] },
  { fault: 'waiters are not told to be queued', backend: locks.QueuesWithoutSayingSo, caughtBy: ['#20', '#13'] },
  { fault: 'fair is claimed and the last comes first', backend: locks.LastComeFirstServed, caughtBy: ['#20'] },
  { fault: 'the request itself is named as its holder', backend: locks.NamesTheWrongHolder, caughtBy: ['#S17'] },
  { fault: 'a label outlives its hold', backend: locks.ShowsStaleLabels, caughtBy: ['#S18'] },
  { fault: 'a text beside a grant never ends', backend: locks.KeepsTexts, caughtBy: ['#S19'] },
  { fault: 'a holder that has left is still seen', backend: locks.SeesThoseThatHaveLeft, caughtBy: ['#S19'] },
  {
    fault: 'a request is granted although the one before it was not',
    backend: locks.AsksForAllOfAChain,
    caughtBy: ['#S16'],
  },
  {
    fault: 'minHold is claimed and released keys are free',
    backend: locks.FreesParkedKeys,
    caughtBy: ['#57d', '#57i', '#57j'],
  },
  { fault: 'minHold is claimed and ends in a crash', backend: locks.ForgetsMinHoldInACrash, caughtBy: ['#57e'] },
  { fault: 'asking again prolongs', backend: locks.ProlongsWhenAskedAgain, caughtBy: ['#S1', '#S2'] },
  { fault: 'a failed attempt prolongs', backend: locks.FailedAttemptsProlong, caughtBy: ['#4'] },
  { fault: 'a holder that asks again is busy', backend: locks.SameIdTwice, caughtBy: ['#S1'] },
  { fault: 'the deadline is later than that of the backend', backend: locks.BelievesTooLong, caughtBy: ['#21'] },
  { fault: 'wall clocks of two machines are compared', backend: locks.ComparesWallClocks, caughtBy: ['#21c'] },
  { fault: 'Date.now() of two machines is compared', backend: locks.ComparesDates, caughtBy: ['#21c'] },
  { fault: 'grants are over when they arrive', backend: locks.GrantsWhatIsOver, caughtBy: ['#5'] },
  {
    fault: 'leases of their own are claimed and all are alike',
    backend: locks.OneLeaseForAll,
    caughtBy: ['#21', '#57c'],
  },
  { fault: 'a refusal is an outage', backend: locks.RefusalIsOutage, caughtBy: ['#53e'] },
  { fault: 'a backend that is down is busy', backend: locks.UnavailableIsBusy, caughtBy: ['#53'] },
  {
    fault: 'a renewal that is not answered is lost',
    backend: locks.UnansweredIsLost,
    caughtBy: ['#29', '#53b'],
  },
  { fault: 'an outage is for ever', backend: locks.NeverRecovers, caughtBy: ['#54'] },
  { fault: 'holder ids are logged', backend: locks.TellsHolders, caughtBy: ['#S13'] },
  { fault: 'the constructor starts timers', backend: locks.TimersInTheConstructor, caughtBy: ['#S14'] },
  { fault: 'stop leaves a timer', backend: locks.TimerThatStays, caughtBy: ['#S15'] },
  { fault: 'each lock leaves a record', backend: locks.KeepsARecordOfEachLock, caughtBy: ['#55'] },
  { fault: 'the namespace is ignored', backend: locks.NoNamespace, caughtBy: ['#48'] },
  { fault: 'case is ignored', backend: locks.renamed((key) => key.toLowerCase()), caughtBy: ['#44'] },
  { fault: 'blanks at the end are ignored', backend: locks.renamed((key) => key.trimEnd()), caughtBy: ['#43'] },
  { fault: 'accents are ignored', backend: locks.renamed((key) => key.normalize('NFC')), caughtBy: ['#43'] },
  { fault: 'keys are cut', backend: locks.renamed((key) => key.slice(0, 128)), caughtBy: ['#45'] },
  {
    fault: 'a prefix is the same key',
    backend: locks.renamed((key) => key.split(':')[0] ?? key),
    caughtBy: ['#2'],
  },
  {
    fault: 'fencing is not claimed and there are tokens',
    backend: locks.WithoutFencing,
    caughtBy: ['#57h'],
  },
  {
    fault: 'asks of an outage are sent again after it',
    backend: locks.SendsAsksAgainAfterAnOutage,
    caughtBy: ['#S5'],
  },
  { fault: 'the end of a lease wakes nobody', backend: locks.OverlooksTheEndOfLeases, caughtBy: ['#21b'] },
  { fault: 'a lock that is handed over has another lease', backend: locks.LongLeasesForWaiters, caughtBy: ['#24'] },
  { fault: 'operators are shown holder ids', backend: locks.ShowsHolders, caughtBy: ['#S13'] },
  { fault: 'a list has one page', backend: locks.ListsItsFirstPage, caughtBy: ['#59e'] },
  { fault: 'a list has keys twice', backend: locks.ListsTwice, caughtBy: ['#59', '#59e'] },
  { fault: 'the prefix of a list is a pattern', backend: locks.ReadsPrefixesAsPatterns, caughtBy: ['#59a'] },
  { fault: 'a list does not know who holds', backend: locks.ListsWithoutNames, caughtBy: ['#59', '#59b', '#59c'] },
  { fault: 'inspect does not know who holds', backend: locks.InspectsWithoutNames, caughtBy: ['#59f'] },
  { fault: 'a list takes retained keys for held', backend: locks.ListsRetainedKeysAsHeld, caughtBy: ['#59d'] },
  { fault: 'records are claimed and there are none', backend: records.NoRecords, caughtBy: ['#60', '#60a'] },
  { fault: 'a record is written over', backend: records.WritesOverAnything, caughtBy: ['#60a', '#60b'] },
  {
    fault: 'a write that has found another value says it was done',
    backend: records.AnswersWhatItWasAskedToWrite,
    caughtBy: ['#60a', '#60b', '#60g'],
  },
  { fault: 'records are compared without case', backend: records.ComparesWithoutCase, caughtBy: ['#60a'] },
  {
    fault: 'a record is compared in one step and written in another',
    backend: records.ReadsThenWrites,
    caughtBy: ['#60b'],
  },
  {
    fault: 'case is ignored in names of records',
    backend: records.renamedRecords((name) => name.toLowerCase()),
    caughtBy: ['#60c'],
  },
  {
    fault: 'names of records are cut',
    backend: records.renamedRecords((name) => name.slice(0, 255)),
    caughtBy: ['#60c'],
  },
  { fault: 'records are cut', backend: records.CutsTexts, caughtBy: ['#60d'] },
  { fault: 'a list of records has one page', backend: records.ListsItsFirstPage, caughtBy: ['#60e'] },
  { fault: 'a list of records has those of others', backend: records.ListsAllNamespaces, caughtBy: ['#60e'] },
  { fault: 'forceRelease deletes a record', backend: records.FreesRecords, caughtBy: ['#60f'] },
  { fault: 'the time of a record is that of a process', backend: records.KnowsItsOwnClockOnly, caughtBy: ['#60g'] },
  { fault: 'the time of a record is Date.now()', backend: records.KnowsTheDateOnly, caughtBy: ['#60g'] },
  { fault: 'the time of a record is in seconds', backend: records.CountsInSeconds, caughtBy: ['#60g'] },
  { fault: 'no answer is no record', backend: records.TakesAnOutageForNothing, caughtBy: ['#60h'] },
  { fault: 'a refusal of a record is an outage', backend: records.RefusalIsOutage, caughtBy: ['#60i'] },
  { fault: 'forceRelease is claimed and does nothing', backend: locks.ForceReleasesNothing, caughtBy: ['#57f'] },
];

function harnessOf(backend: Mutant['backend']): ProviderHarness {
  const harness = new MemoryServer(new MemoryStore(), backend).harness();
  return backend === locks.WithoutFencing
    ? { ...harness, capabilities: { ...harness.capabilities, fencing: false }, clock: new FakeClock() }
    : { ...harness, clock: new FakeClock() };
}

async function run(id: string, harness: ProviderHarness): Promise<void> {
  const wanted = conformanceCases(harness).find((each) => each.id === id);
  if (!wanted || wanted.notRun !== undefined) throw new Error(`Case ${id} does not run here`);
  return wanted.run();
}

describe('the conformance kit catches a provider where', () => {
  afterAll(() => {
    locks.TimersInTheConstructor.clear();
  });

  for (const { fault, backend, caughtBy } of MUTANTS) {
    it.each(caughtBy)(`${fault} (%s)`, async (id) => {
      await run(id, harnessOf(DistantBackend));
      await expect(run(id, harnessOf(backend))).rejects.toThrow();
    });
  }

  it('the capabilities are not those of its harness (#57)', async () => {
    const harness = harnessOf(DistantBackend);
    const capabilities = { ...harness.capabilities, forceRelease: false };
    await expect(run('#57', { ...harness, capabilities })).rejects.toThrow();
  });
});
