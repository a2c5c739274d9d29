import { type ConnectionOptions, createSecureContext } from 'node:tls';
import { isError, safeText } from '../../api/cause.js';
import { ZooKeeperFailure } from './zookeeper-failure.js';

/** TLS options that Node parses before it connects. A key and a certificate may be valid but not match each other. */
const OPTIONS: readonly (readonly (keyof ConnectionOptions)[])[] = [
  ...(['passphrase', 'ca', 'cert', 'crl', 'ciphers', 'ecdhCurve', 'dhparam', 'sigalgs'] as const).map((name) => [name]),
  ...(['minVersion', 'maxVersion', 'secureProtocol', 'secureOptions'] as const).map((name) => [name]),
  ['key', 'passphrase'],
  ['pfx', 'passphrase'],
  ['key', 'passphrase', 'cert'],
];

/** Returns the failure for TLS options that prevent any connection attempt. */
export function tlsFault(tls: ConnectionOptions, cause: unknown): ZooKeeperFailure {
  const names = OPTIONS.find((each) => !isUsable(tls, each)) ?? [];
  const shown = names.filter((name, index) => index === 0 || name !== 'passphrase').map((name) => `"tls.${name}"`);
  const option = shown.length === 0 ? '"tls"' : shown.join(' with ');
  const reason = safeText(isError(cause) ? cause.message : String(cause));
  return new ZooKeeperFailure(
    'misconfigured',
    `The option ${option} is invalid: ${reason}. Check that the PEM is complete, and that "key" and "passphrase" match "cert".`,
    { cause },
  );
}

/** Options may be getters that read files and throw. */
function isUsable(tls: ConnectionOptions, names: readonly (keyof ConnectionOptions)[]): boolean {
  try {
    createSecureContext(Object.fromEntries(names.map((name) => [name, tls[name]])));
    return true;
  } catch {
    return false;
  }
}
