import { type ConnectionOptions, createSecureContext } from 'node:tls';
import { isError, safeText } from '../../api/cause.js';
import { ZooKeeperFailure } from './zookeeper-client.js';

/** Those that Node reads before it connects. A key and a certificate that are sound by themselves may not belong together. */
const OPTIONS: readonly (readonly (keyof ConnectionOptions)[])[] = [
  ...(['passphrase', 'ca', 'cert', 'crl', 'ciphers', 'ecdhCurve', 'dhparam', 'sigalgs'] as const).map((name) => [name]),
  ...(['minVersion', 'maxVersion', 'secureProtocol', 'secureOptions'] as const).map((name) => [name]),
  ['key', 'passphrase'],
  ['pfx', 'passphrase'],
  ['key', 'passphrase', 'cert'],
];

/** The failure of a connection that Node did not even begin, because it cannot use the options of TLS. */
export function tlsFault(tls: ConnectionOptions, cause: unknown): ZooKeeperFailure {
  const names = OPTIONS.find((each) => !isUsable(tls, each)) ?? [];
  const shown = names.filter((name, index) => index === 0 || name !== 'passphrase').map((name) => `"tls.${name}"`);
  const option = shown.length === 0 ? '"tls"' : shown.join(' with ');
  const reason = safeText(isError(cause) ? cause.message : String(cause));
  return new ZooKeeperFailure(
    'misconfigured',
    `The option ${option} cannot be used: ${reason}. Check that what it contains, or the file that it is read from, is complete PEM (not half-written), and that "key" and "passphrase" belong to "cert".`,
    { cause },
  );
}

/** Getters may read files, and throw. */
function isUsable(tls: ConnectionOptions, names: readonly (keyof ConnectionOptions)[]): boolean {
  try {
    createSecureContext(Object.fromEntries(names.map((name) => [name, tls[name]])));
    return true;
  } catch {
    return false;
  }
}
