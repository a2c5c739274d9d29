import { DataSource } from 'typeorm';
import { entryNameOf } from '../../lib/providers/sql/table/lock-name.js';
import { TypeOrmVersionLockProvider } from '../../lib/providers/typeorm/index.js';
import type { ProviderHarness } from '../../lib/provider-kit/index.js';
import { capabilitiesOf } from '../backend-context.js';
import { observed, type Observer } from './observed-driver.js';
import { type SqlBackend, TABLE } from './sql-backend.js';

/** A row as an operator sees it. */
export interface LeaseRow {
  readonly name: string;
  readonly token: bigint;
  readonly holder: string | null;
}

/** Returns the lease rows of a namespace. */
export async function leaseRows(admin: DataSource, namespace: string): Promise<LeaseRow[]> {
  const rows = await admin.query<{ name: string | Buffer; token: string | number; holder: string | Buffer | null }[]>(
    `SELECT name, token, holder FROM ${TABLE} WHERE name LIKE '${namespace}#lease:%'`,
  );
  return rows.map(({ name, token, holder }) => ({
    name: name.toString(),
    token: BigInt(token),
    holder: holder?.toString() ?? null,
  }));
}

/** Frees a lease behind its holder's back. */
export async function revokeLease(admin: DataSource, namespace: string, key: string): Promise<void> {
  const name = entryNameOf(namespace, 'lease', key);
  await admin.query(`UPDATE ${TABLE} SET holder = NULL, expires = 0 WHERE name = '${name}'`);
}

/** A provider on this server with its own proxy. */
export function versionProvider(
  backend: SqlBackend,
  // A busy machine replies late, which must not look like an outage.
  {
    commandTimeout = '3s',
    observer,
  }: { readonly commandTimeout?: string; readonly observer?: Observer | undefined } = {},
): Promise<TypeOrmVersionLockProvider> {
  return backend.wired((plain) => {
    const dataSource = observer ? observed(plain, observer) : plain;
    return new TypeOrmVersionLockProvider({ dataSource, synchronize: true, commandTimeout });
  });
}

const capabilities = capabilitiesOf(
  new TypeOrmVersionLockProvider({ dataSource: new DataSource({ type: 'postgres' }) }),
);

/**
 * The conformance kit's harness for leases on a server.
 * @param hasAccounts Whether each provider has its own account there.
 */
export function versionLockHarness(backend: () => SqlBackend, hasAccounts = true): ProviderHarness {
  return {
    capabilities,
    records: true,
    // A busy machine replies late, which must not look like an outage.
    create: () => backend().leases({ commandTimeout: '6s' }),
    faults: {
      revoke: (namespace, key) => revokeLease(backend().admin, namespace, key),
      cutOff: async (provider) => backend().wireOf(provider)?.freeze(),
      silence: async (provider) => backend().wireOf(provider)?.freeze(),
      ...(hasAccounts && { refuse: (provider) => backend().refuse(provider) }),
      restore: (provider) => backend().restore(provider),
    },
    remainingLocks: (namespace) => heldLeases(backend().admin, namespace),
  };
}

async function heldLeases(admin: DataSource, namespace: string): Promise<number> {
  // An entry in `holders` begins with the holder and `=` while it is held, and ends at 0 once it is released.
  const rows = await admin.query<{ holder: unknown; holders: string | Buffer | null }[]>(
    `SELECT holder, holders FROM ${TABLE} WHERE name LIKE '${namespace}#lease:%'`,
  );
  return rows.filter(({ holder, holders }) => holder !== null || /=(?!0{16})/.test(holders?.toString() ?? '')).length;
}
