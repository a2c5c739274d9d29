import { MemoryStore } from '../../lib/providers/memory/memory-store.js';
import { conformanceCases, type ProviderHarness } from '../../lib/provider-kit/index.js';
import { FakeClock } from '../../lib/testing/index.js';
import * as locks from './broken/locks.js';
import * as records from './broken/records.js';
import { DistantBackend, MemoryServer } from './memory-server.js';

interface Mutant {
  readonly fault: string;
  readonly backend: typeof DistantBackend;
  /** The cases that must fail. Others may also fail. */
  readonly caughtBy: readonly string[];
}

const MUTANTS: readonly Mutant[] = [
  {
    fault: "a release that frees another holder's lock",
    backend: locks.FreesAnybody,
    caughtBy: ['#5', '#6', '#6b', '#S3'],
  },
  {
    fault: 'a release that returns `released` without a lock',
    backend: locks.AlwaysReleased,
    caughtBy: ['#5', '#6', '#S3'],
  },
  { fault: 'a release that does nothing', backend: locks.ForgetsToRelease, caughtBy: ['#3', '#7', '#9'] },
  { fault: 'an ordered backend whose release is overtaken', backend: locks.ReleasesLater, caughtBy: ['#57k'] },
  { fault: 'an acquire that admits every request', backend: locks.AdmitsEverybody, caughtBy: ['#1', '#10', '#11'] },
  {
    fault: 'a shared mode in which readers exclude each other',
    backend: locks.ReadersExcludeEachOther,
    caughtBy: ['#57a', '#11'],
  },
  {
    fault: 'fencing tokens that restart with each provider',
    backend: locks.RestartsTokens,
    caughtBy: ['#35', '#35b', '#11'],
  },
  { fault: 'a renewal that reacquires the lock', backend: locks.ReacquiresOnRenewal, caughtBy: ['#S6', '#S7'] },
  {
    fault: 'concurrent renewals that all return the first outcome',
    backend: locks.OneOutcomeForAllRenewals,
    caughtBy: ['#S9'],
  },
  { fault: 'a renewal that reports success but extends nothing', backend: locks.NeverRenews, caughtBy: ['#22', '#S8'] },
  { fault: 'an aborted request that stays in the queue', backend: locks.StaysInTheQueue, caughtBy: ['#S10'] },
  { fault: 'an abort that takes effect late', backend: locks.AnswersAnAbortLate, caughtBy: ['#S10'] },
  {
    fault: 'a grant dropped when it races with an abort',
    backend: locks.LeaksWhatIsGrantedAtTheAbort,
    caughtBy: ['#17'],
  },
  { fault: 'waiters that are not reported as queued', backend: locks.QueuesWithoutSayingSo, caughtBy: ['#20', '#13'] },
  { fault: 'a fair backend that serves the last waiter first', backend: locks.LastComeFirstServed, caughtBy: ['#20'] },
  { fault: 'a request reported as its own holder', backend: locks.NamesTheWrongHolder, caughtBy: ['#S17'] },
  { fault: 'a label that outlives its lock', backend: locks.ShowsStaleLabels, caughtBy: ['#S18'] },
  { fault: 'a wait board text that never expires', backend: locks.KeepsTexts, caughtBy: ['#S19'] },
  { fault: 'a former holder that is still listed', backend: locks.SeesThoseThatHaveLeft, caughtBy: ['#S19'] },
  {
    fault: 'a chained request granted although the one before it was not',
    backend: locks.AsksForAllOfAChain,
    caughtBy: ['#S16'],
  },
  {
    fault: 'retention that is declared but missing after a release',
    backend: locks.FreesParkedKeys,
    caughtBy: ['#57d', '#57i', '#57j'],
  },
  {
    fault: 'retention that is declared but lost in a crash',
    backend: locks.ForgetsMinHoldInACrash,
    caughtBy: ['#57e'],
  },
  {
    fault: 'a repeated acquire that extends the lease',
    backend: locks.ProlongsWhenAskedAgain,
    caughtBy: ['#S1', '#S2'],
  },
  { fault: 'a failed attempt that extends the lease', backend: locks.FailedAttemptsProlong, caughtBy: ['#4'] },
  { fault: 'a repeated acquire that is busy for the holder', backend: locks.SameIdTwice, caughtBy: ['#S1'] },
  { fault: "a local deadline later than the backend's", backend: locks.BelievesTooLong, caughtBy: ['#21'] },
  { fault: 'wall clocks compared between machines', backend: locks.ComparesWallClocks, caughtBy: ['#21c'] },
  { fault: 'Date.now() compared between machines', backend: locks.ComparesDates, caughtBy: ['#21c'] },
  { fault: 'grants that are expired on arrival', backend: locks.GrantsWhatIsOver, caughtBy: ['#5'] },
  {
    fault: 'per-lock leases that are declared but all equal',
    backend: locks.OneLeaseForAll,
    caughtBy: ['#21', '#57c'],
  },
  { fault: 'a refusal reported as an outage', backend: locks.RefusalIsOutage, caughtBy: ['#53e'] },
  { fault: 'an outage reported as busy', backend: locks.UnavailableIsBusy, caughtBy: ['#53'] },
  {
    fault: 'an unanswered renewal reported as lost',
    backend: locks.UnansweredIsLost,
    caughtBy: ['#29', '#53b'],
  },
  { fault: 'an outage that never ends', backend: locks.NeverRecovers, caughtBy: ['#54'] },
  { fault: 'logged holder ids', backend: locks.TellsHolders, caughtBy: ['#S13'] },
  { fault: 'a constructor that starts timers', backend: locks.TimersInTheConstructor, caughtBy: ['#S14'] },
  { fault: 'a timer left after close', backend: locks.TimerThatStays, caughtBy: ['#S15'] },
  { fault: 'a record left by each lock', backend: locks.KeepsARecordOfEachLock, caughtBy: ['#55'] },
  { fault: 'an ignored namespace', backend: locks.NoNamespace, caughtBy: ['#48'] },
  { fault: 'ignored case in keys', backend: locks.renamed((key) => key.toLowerCase()), caughtBy: ['#44'] },
  { fault: 'ignored trailing blanks in keys', backend: locks.renamed((key) => key.trimEnd()), caughtBy: ['#43'] },
  { fault: 'ignored accents in keys', backend: locks.renamed((key) => key.normalize('NFC')), caughtBy: ['#43'] },
  { fault: 'truncated keys', backend: locks.renamed((key) => key.slice(0, 128)), caughtBy: ['#45'] },
  {
    fault: 'a key prefix treated as the key',
    backend: locks.renamed((key) => key.split(':')[0] ?? key),
    caughtBy: ['#2'],
  },
  {
    fault: 'tokens without declared fencing',
    backend: locks.WithoutFencing,
    caughtBy: ['#57h'],
  },
  {
    fault: 'requests made during an outage and sent after it',
    backend: locks.SendsAsksAgainAfterAnOutage,
    caughtBy: ['#S5'],
  },
  { fault: 'an expired lease that wakes no waiter', backend: locks.OverlooksTheEndOfLeases, caughtBy: ['#21b'] },
  { fault: 'a handoff with a different lease', backend: locks.LongLeasesForWaiters, caughtBy: ['#24'] },
  { fault: 'holder ids shown to operators', backend: locks.ShowsHolders, caughtBy: ['#S13'] },
  { fault: 'a list of only one page', backend: locks.ListsItsFirstPage, caughtBy: ['#59e'] },
  { fault: 'a list that repeats keys', backend: locks.ListsTwice, caughtBy: ['#59', '#59e'] },
  { fault: 'a list prefix treated as a pattern', backend: locks.ReadsPrefixesAsPatterns, caughtBy: ['#59a'] },
  { fault: 'a list without holders', backend: locks.ListsWithoutNames, caughtBy: ['#59', '#59b', '#59c'] },
  { fault: 'inspect() without holders', backend: locks.InspectsWithoutNames, caughtBy: ['#59f'] },
  { fault: 'a list that reports retained keys as held', backend: locks.ListsRetainedKeysAsHeld, caughtBy: ['#59d'] },
  { fault: 'records that are declared but missing', backend: records.NoRecords, caughtBy: ['#60', '#60a'] },
  { fault: 'a record overwritten unconditionally', backend: records.WritesOverAnything, caughtBy: ['#60a', '#60b'] },
  {
    fault: 'a failed replace reported as successful',
    backend: records.AnswersWhatItWasAskedToWrite,
    caughtBy: ['#60a', '#60b', '#60g'],
  },
  { fault: 'a record comparison that ignores case', backend: records.ComparesWithoutCase, caughtBy: ['#60a'] },
  {
    fault: 'a non-atomic compare and write of a record',
    backend: records.ReadsThenWrites,
    caughtBy: ['#60b'],
  },
  {
    fault: 'ignored case in record names',
    backend: records.renamedRecords((name) => name.toLowerCase()),
    caughtBy: ['#60c'],
  },
  {
    fault: 'truncated record names',
    backend: records.renamedRecords((name) => name.slice(0, 255)),
    caughtBy: ['#60c'],
  },
  { fault: 'truncated records', backend: records.CutsTexts, caughtBy: ['#60d'] },
  { fault: 'a record list of only one page', backend: records.ListsItsFirstPage, caughtBy: ['#60e'] },
  { fault: "a record list with another namespace's records", backend: records.ListsAllNamespaces, caughtBy: ['#60e'] },
  { fault: 'a forceRelease() that deletes a record', backend: records.FreesRecords, caughtBy: ['#60f'] },
  {
    fault: "the process's clock as the record's server time",
    backend: records.KnowsItsOwnClockOnly,
    caughtBy: ['#60g'],
  },
  { fault: "Date.now() as the record's server time", backend: records.KnowsTheDateOnly, caughtBy: ['#60g'] },
  { fault: "a record's server time in seconds", backend: records.CountsInSeconds, caughtBy: ['#60g'] },
  { fault: 'an outage reported as a missing record', backend: records.TakesAnOutageForNothing, caughtBy: ['#60h'] },
  { fault: 'a refused record write reported as an outage', backend: records.RefusalIsOutage, caughtBy: ['#60i'] },
  { fault: 'a forceRelease() that does nothing', backend: locks.ForceReleasesNothing, caughtBy: ['#57f'] },
];

function harnessOf(backend: Mutant['backend']): ProviderHarness {
  const harness = new MemoryServer(new MemoryStore(), backend).harness();
  return backend === locks.WithoutFencing
    ? { ...harness, capabilities: { ...harness.capabilities, fencing: false }, clock: new FakeClock() }
    : { ...harness, clock: new FakeClock() };
}

async function run(id: string, harness: ProviderHarness): Promise<void> {
  const wanted = conformanceCases(harness).find((each) => each.id === id);
  if (!wanted || wanted.notRun !== undefined) throw new Error(`Case ${id} is not run here`);
  return wanted.run();
}

describe('the conformance kit catches', () => {
  afterAll(() => {
    locks.TimersInTheConstructor.clear();
  });

  for (const { fault, backend, caughtBy } of MUTANTS) {
    it.each(caughtBy)(`${fault} (%s)`, async (id) => {
      await run(id, harnessOf(DistantBackend));
      await expect(run(id, harnessOf(backend))).rejects.toThrow();
    });
  }

  it('capabilities that differ from the harness (#57)', async () => {
    const harness = harnessOf(DistantBackend);
    const capabilities = { ...harness.capabilities, forceRelease: false };
    await expect(run('#57', { ...harness, capabilities })).rejects.toThrow();
  });
});
