import { describe, it } from '@jest/globals';

type Define = (title: string, body: () => void) => void;
type DefineTest = (title: string, body: () => Promise<void> | void, timeout?: number) => void;

/** Like `describe`, but skips the tests if there is a reason to. Each skipped test's title names the reason. */
export function describeUnless(reason: string | undefined): Define {
  return reason === undefined
    ? describe
    : (title, body) => {
        describe.skip(`${title} (not run: ${reason})`, body);
      };
}

/** Like {@link describeUnless}, for a single test. */
export function itUnless(reason: string | undefined): DefineTest {
  return reason === undefined
    ? it
    : (title, body, timeout) => {
        it.skip(`${title} (not run: ${reason})`, body, timeout);
      };
}
