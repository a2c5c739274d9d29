// Plain JavaScript without types, as the programs are.
const REPORT: string = '../../chaos/report.mjs';

interface Result {
  readonly total: object;
  readonly byRule: object;
  readonly faults: readonly object[];
}

describe('the result of a run', () => {
  const fault = { name: 'worker paused', sections: 10, overstays: 1, refused: 2, violations: 1 };
  const verdict = {
    counts: { sections: 30, overstays: 2, refused: 4 },
    faults: [{ ...fault, recovery: 12.4 }, { ...fault, recovery: 99.6 }, fault],
    violations: [{ rule: 'late' }, { rule: 'late' }, { rule: 'stale' }],
    excused: [{ under: 'worker paused' }, { under: 'no fault' }],
  };

  it('is counted by fault, by rule and in total', async () => {
    const { summarize } = (await import(REPORT)) as { summarize(verdict: object): Result };
    expect(summarize(verdict)).toEqual({
      total: { faults: 3, sections: 30, overstays: 2, documented: 2, refused: 4, violations: 3 },
      byRule: { late: 2, stale: 1 },
      faults: [
        {
          fault: 'worker paused',
          times: 3,
          sections: 30,
          overstays: 3,
          documented: 1,
          refused: 6,
          violations: 3,
          recoveryMedian: 100,
          recoveryMax: 100,
        },
      ],
    });
  });

  it('is a table with one row for each fault, and one for all', async () => {
    const report = (await import(REPORT)) as { summarize(verdict: object): Result; faultTable(result: Result): string };
    const rows = report.faultTable(report.summarize(verdict)).split('\n');
    expect(rows[2]).toBe('| worker paused | 3 | 30 | 3 | 1 | 6 | 3 | 100 / 100 |');
    expect(rows[3]).toBe('| **all** | 3 | 30 | 2 | 2 | 4 | 3 |  |');
  });
});
