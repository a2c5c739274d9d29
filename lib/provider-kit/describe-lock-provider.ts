import { conformanceCases, type ConformanceCase } from './conformance-cases.js';
import type { ProviderHarness } from './provider-harness.js';
import { RunAhead } from './run-ahead.js';

/** The part of a test runner that the kit needs: Jest, Vitest, Mocha, and node:test all have it. */
export interface TestRunner {
  describe(title: string, body: () => void): unknown;
  readonly it: {
    // The timeout in ms is for Jest and Vitest; node:test has none by default, and Mocha takes it from its options.
    (title: string, body: () => Promise<void>, timeout: number): unknown;
    skip(title: string, body: () => Promise<void>): unknown;
  };
  /** For Jest and Vitest. If only some cases run, waits for any others started in advance, then stops the backend. */
  readonly afterAll?: (body: () => Promise<void>, timeout: number) => unknown;
  /** The same for Mocha and node:test. */
  readonly after?: (body: () => Promise<void>) => unknown;
}

const DEFAULT_CONCURRENCY = 8;
// Longer than any case can take, because a hung case fails on its own.
const CASE_TIMEOUT = 180_000;

/**
 * The conformance kit: declares, inside a `describe`, all cases that a lock provider must pass.
 *
 * A provider that passes works with every feature of this package. A claimed capability that isn't honored is a
 * failure; unclaimed ones are listed in the group's title. Cases that the harness can't support are declared as
 * skipped, with the reason.
 *
 * @param runner the object with `describe` and `it`. Default: the global ones. If there are none (node:test, Vitest),
 * pass the imported ones: `{ describe, it, after }`, or `afterAll`.
 */
export function describeLockProvider(
  name: string,
  harness: ProviderHarness,
  runner: TestRunner = globalRunner(),
): void {
  const cases = conformanceCases(harness);
  const runAhead = new RunAhead(
    cases.filter(({ notRun }) => notRun === undefined),
    harness.clock ? 1 : (harness.concurrency ?? DEFAULT_CONCURRENCY),
  );
  runner.describe(`lock provider ${name}${doesNotApply(cases)}`, () => {
    const end = () => runAhead.end();
    if (runner.afterAll) runner.afterAll(end, CASE_TIMEOUT);
    else runner.after?.(end);
    for (const each of cases) {
      const title = `${each.id} ${each.title}`;
      if (each.notRun === undefined) runner.it(title, () => runAhead.result(each), CASE_TIMEOUT);
      else if (!each.notRun.byDesign) {
        runner.it.skip(`${title} (not run: ${each.notRun.reason})`, () => Promise.resolve());
      }
    }
  });
}

function doesNotApply(cases: readonly ConformanceCase[]): string {
  const reasons = cases.flatMap(({ notRun }) => (notRun?.byDesign ? notRun.reason : []));
  if (reasons.length === 0) return '';
  return ` (${reasons.length} cases do not apply: ${[...new Set(reasons)].join('; ')})`;
}

function globalRunner(): TestRunner {
  const { describe, it, afterAll, after }: Partial<TestRunner> = globalThis as object;
  if (describe && it) return { describe, it, ...(afterAll && { afterAll }), ...(after && { after }) };
  throw new Error(
    'There are no global describe and it: pass those of the test runner, describeLockProvider(…, { describe, it }).',
  );
}
