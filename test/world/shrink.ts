import type { Plan } from './plan.js';

/** A violation without its numbers, to tell whether a smaller plan shows the same one. */
export function kindOf(violation: string): string {
  return violation.replace(/\d[\d.]*/g, '#').slice(0, 60);
}

/**
 * Shrinks a plan as long as `fails` holds for it: fewer faults, callers, and processes, and less time.
 *
 * @param most the maximum number of plans to try
 */
export async function shrink(plan: Plan, fails: (plan: Plan) => Promise<boolean>, most = 150): Promise<Plan> {
  let smallest = plan;
  let tries = 0;
  const accepts = async (smaller: Plan): Promise<boolean> => {
    if (tries >= most) return false;
    tries += 1;
    if (!(await fails(smaller))) return false;
    smallest = smaller;
    return true;
  };
  for (let isSmaller = true; isSmaller && tries < most;) {
    const before = smallest;
    await accepts({ ...smallest, duration: smallest.duration / 2 });
    await removeParts(
      () => smallest.faults,
      (faults) => accepts({ ...smallest, faults }),
    );
    await removeParts(
      () => smallest.callers,
      (callers) => accepts({ ...smallest, callers }),
    );
    if (smallest.processes > 1) await accepts(withoutLastProcess(smallest));
    isSmaller = smallest !== before;
  }
  return smallest;
}

/** Tries to remove halves, then quarters, and finally single items. */
async function removeParts<T>(parts: () => readonly T[], accepts: (rest: T[]) => Promise<boolean>): Promise<void> {
  for (let size = Math.ceil(parts().length / 2); size >= 1; size = Math.floor(size / 2)) {
    for (let from = 0; from < parts().length;) {
      const rest = [...parts()];
      rest.splice(from, size);
      if (!(await accepts(rest))) from += size;
    }
  }
}

function withoutLastProcess(plan: Plan): Plan {
  const processes = plan.processes - 1;
  const remains = ({ place }: { readonly place: number }) => place < processes;
  return { ...plan, processes, callers: plan.callers.filter(remains), faults: plan.faults.filter(remains) };
}
