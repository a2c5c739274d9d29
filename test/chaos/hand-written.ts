/**
 * One record of a history: what a caller reported to the resource, and when. The caller `w1/1.0.1` belongs to the
 * worker `w1/1`.
 */
export type Entry = readonly [at: number, event: string, caller?: string | undefined, more?: object];

export interface Verdict {
  readonly violations: readonly string[];
  readonly excused: readonly string[];
  readonly recoveries: readonly (number | undefined)[];
}

interface Checker {
  observe(entry: object): void;
  readonly violations: readonly { readonly rule: string }[];
  readonly excused: readonly { readonly rule: string }[];
  readonly faults: readonly { readonly recovery?: number }[];
}

// Plain JavaScript without types, like the programs.
const CHECKER: string = '../../chaos/judge/checker.mjs';
const SUBJECT = { fair: false, allows: {}, lifetime: 100, recovery: 100 };

/** The claims of a holder that believes it holds the lock for another 50 ms, and of a holder that knows of its loss. */
export const HELD = { accepted: true, held: true, remaining: 50, overdue: -50 };
export const OVER = { accepted: true, held: false, remaining: 0, overdue: 10 };

/** The verdict on a hand-written history of exclusive locks of the key `a`, unless noted otherwise. */
export async function judged(history: readonly Entry[], subject: object = {}): Promise<Verdict> {
  const { Checker } = (await import(CHECKER)) as { Checker: new (subject: object) => Checker };
  const checker = new Checker({ ...SUBJECT, ...subject });
  for (const [at, event, op, more] of history) {
    const about = op === undefined ? {} : { op, key: 'a', mode: 'exclusive', token: null };
    checker.observe({ at, event, ...about, ...more });
  }
  const rules = (found: Checker['violations']) => found.map(({ rule }) => rule);
  return {
    violations: rules(checker.violations),
    excused: rules(checker.excused),
    recoveries: checker.faults.map(({ recovery }) => recovery),
  };
}
