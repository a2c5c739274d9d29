import { describe, expect, it } from '@jest/globals';

// Plain JavaScript without types, as the programs are.
const REPORT: string = '../../chaos/report.mjs';
const SUBJECTS: string = '../../chaos/subjects/index.mjs';
const FAULTS: string = '../../chaos/faults/index.mjs';

async function isAsExpected(control: readonly string[] | undefined, broken: readonly string[], sections = 50) {
  const report = (await import(REPORT)) as { isAsExpected(result: object): boolean };
  const violations = broken.map((rule) => ({ rule }));
  return report.isAsExpected({ subject: { control }, verdict: { violations, counts: { sections } } });
}

describe('a run is as expected', () => {
  it('when a provider breaks no rule, in enough sections', async () => {
    expect(await isAsExpected(undefined, [])).toBe(true);
    expect(await isAsExpected(undefined, [], 49)).toBe(false);
    expect(await isAsExpected(undefined, ['leak'])).toBe(false);
  });

  it('when a control breaks all the rules that it is known to break', async () => {
    expect(await isAsExpected(['overlap', 'stale'], ['stale', 'late', 'overlap'])).toBe(true);
    expect(await isAsExpected(['overlap', 'stale'], ['overlap', 'unexpected'])).toBe(false);
    expect(await isAsExpected(['overlap', 'stale'], [])).toBe(false);
  });
});

it('each control names the rules that it breaks', async () => {
  const { subjects } = (await import(SUBJECTS)) as { subjects: Record<string, { control?: readonly string[] }> };
  expect(subjects['naive']?.control).toEqual(['overlap', 'stale']);
  expect(subjects['redlock-package']?.control).toEqual(['late']);
});

it('the history records how long an event loop was blocked', async () => {
  const { faults } = (await import(FAULTS)) as { faults: Map<string, { end?: unknown }> };
  expect(faults.get('event loop blocked')?.end).toBeInstanceOf(Function);
});
