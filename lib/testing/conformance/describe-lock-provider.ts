import { conformanceCases } from './conformance-cases.js';
import type { ProviderHarness } from './provider-harness.js';
import { RunAhead } from './run-ahead.js';

/** What the kit needs of a test runner: Jest, Vitest, Mocha and node:test all have it. */
export interface TestRunner {
  describe(title: string, body: () => void): unknown;
  readonly it: {
    // The time-out in ms is for Jest and Vitest; node:test has none by default, Mocha takes it from its options.
    (title: string, body: () => Promise<void>, timeout: number): unknown;
    skip(title: string, body: () => Promise<void>): unknown;
  };
}

const DEFAULT_CONCURRENCY = 8;
const CASE_TIMEOUT = 60_000;

/**
 * The conformance kit: declares all cases that a lock provider has to pass, below `describe`.
 *
 * A provider that passes can be used behind every feature of this package. Cases that the harness has no means for are
 * declared as skipped, with the reason; a capability that is claimed and not observed fails.
 *
 * @param runner where `describe` and `it` are. Default: the global ones; node:test and Vitest have them to import.
 */
export function describeLockProvider(
  name: string,
  harness: ProviderHarness,
  runner: TestRunner = globalThis as unknown as TestRunner,
): void {
  const cases = conformanceCases(harness);
  const runAhead = new RunAhead(
    cases.filter(({ notRun }) => notRun === undefined),
    harness.clock ? 1 : (harness.concurrency ?? DEFAULT_CONCURRENCY),
  );
  runner.describe(`lock provider ${name}`, () => {
    for (const each of cases) {
      const title = `${each.id} ${each.title}`;
      if (each.notRun === undefined) runner.it(title, () => runAhead.result(each), CASE_TIMEOUT);
      else runner.it.skip(`${title} (not run: ${each.notRun})`, () => Promise.resolve());
    }
  });
}
