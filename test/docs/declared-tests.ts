type Body = () => unknown;

/**
 * The tests that a block declares with a test runner's functions. Jest itself accepts no new tests while one is
 * running.
 */
class DeclaredTests {
  /** The first line of a block that declares tests. */
  readonly header = `import { afterEach, beforeEach, test } from '${import.meta.filename}';`;
  readonly tests: Body[] = [];
  readonly before: Body[] = [];
  readonly after: Body[] = [];

  get size(): number {
    return this.tests.length;
  }

  async run(): Promise<void> {
    for (const body of this.tests) {
      try {
        for (const hook of this.before) await hook();
        await body();
      } finally {
        // As in a test runner, even if a hook before the test failed.
        for (const hook of this.after) await hook();
      }
    }
  }

  forget(): void {
    for (const list of [this.tests, this.before, this.after]) list.length = 0;
  }
}

export const declaredTests = new DeclaredTests();
export const test = (_title: string, body: Body) => declaredTests.tests.push(body);
export const beforeEach = (hook: Body) => declaredTests.before.push(hook);
export const afterEach = (hook: Body) => declaredTests.after.push(hook);
