import { expect, it } from '@jest/globals';
import { FREED, isGranted, leaseOf, type LeaseRow } from '../../lib/providers/sql/version/lease.js';

const NOW = 1_700_000_000_000_000;

/** A row with two limited holders of the only place, of which the first ends at this time. */
const rowWith = (end: string): LeaseRow => ({
  ...{ name: 'k', token: 2, holder: null, label: null, expires: NOW + 1_000_000, server_time: NOW },
  holders: `;first=${end},1,1,1;second=${NOW + 1_000_000},2,1,1`,
});

const isSecondGranted = (end: string) => {
  const lease = leaseOf(rowWith(end));
  return isGranted(lease, lease.pieces[1]!.hold);
};

it('a limited holder whose lease has ended takes its share until it is freed: a renewal of it may be under way', () => {
  expect(isSecondGranted(String(NOW + 1))).toBe(false);
  expect(isSecondGranted(String(NOW - 1))).toBe(false);
  expect(isSecondGranted(FREED)).toBe(true);
});
