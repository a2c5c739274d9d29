import { whyTooOld } from '../../lib/providers/shared/oldest-version.js';

it.each([
  ['10.5.23-MariaDB-0+deb11u1', '10.6'],
  ['9.9', '10.6'],
  ['1.6.9', '1.6.10'],
  ['8.0.0-dmr', '8.0.1'],
  ['8', '8.0.1'],
])('%s is older than %s', (version, oldest) => {
  const [number] = version.split('-');
  expect(whyTooOld('It', version, oldest)).toBe(`It ${number!} is too old for locks: it must be ${oldest} or later.`);
});

it.each([
  ['10.6.0-MariaDB', '10.6'],
  ['11.0', '10.6'],
  ['1.6.10', '1.6.10'],
  ['18beta1', '13'],
  ['13.16 (Debian 13.16-0+deb11u1)', '13'],
  ['mcrouter', '1.6.10'],
  ['', '6.2'],
])('%p is not older than %s, or does not say', (version, oldest) => {
  expect(whyTooOld('It', version, oldest)).toBeUndefined();
});
