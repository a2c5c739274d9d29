import { conformanceCases } from '../../dist/esm/provider-kit.js';

/** Each case of the conformance kit, and what it requires from the harness. */
export function caseList() {
  const everything = { shared: true, limits: true, fair: true, fencing: true, lease: 'per-lock' };
  const capabilities = { ...everything, minHold: true, forceRelease: true, ordered: true, list: true };
  return conformanceCases({ capabilities, records: true, create: () => undefined })
    .map(({ id, title, notRun }) => {
      const [, needed] = /\((faults\..*)\)/.exec(notRun?.reason) ?? [];
      return `- \`${id}\` ${title}${needed ? ` (needs \`${needed.replaceAll(', ', '\`, \`')}\`)` : ''}`;
    })
    .join('\n');
}
