import { describe, it } from '@jest/globals';

type Define = (title: string, body: () => void) => void;
type DefineTest = (title: string, body: () => Promise<void> | void, timeout?: number) => void;

/** `describe`, but where there is a reason against it, its tests are skipped, and each names the reason in the list at the end of the run. */
export function describeUnless(reason: string | undefined): Define {
  return reason === undefined
    ? describe
    : (title, body) => {
        describe.skip(`${title} (not run: ${reason})`, body);
      };
}

/** The same for one test. */
export function itUnless(reason: string | undefined): DefineTest {
  return reason === undefined
    ? it
    : (title, body, timeout) => {
        it.skip(`${title} (not run: ${reason})`, body, timeout);
      };
}
