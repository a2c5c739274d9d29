import type { Instance } from '../../../api/lock-provider.js';
import { instanceNameOf, labelOf, textOf } from '../table/lock-name.js';
import { type LeaseTable, toMicroseconds } from './lease-table.js';

const DAY = 86_400_000;

/** Records the name of an instance in a row of its own, which no purge removes for a day. */
export async function registerInstance(leases: LeaseTable, namespace: string, { id, name }: Instance): Promise<void> {
  const { family, run, name: table } = leases;
  const row = instanceNameOf(namespace, id);
  await leases.createRow(row);
  const values = [labelOf(name), toMicroseconds(DAY), row];
  await run(
    `UPDATE ${table} SET label = ${family.value(1)}, expires = ${family.now} + ${family.value(2)} ` +
      `WHERE name = ${family.value(3)}`,
    values,
  );
}

/** The names of those instances that are recorded, by their ids. */
export async function namesOfInstances(
  leases: LeaseTable,
  namespace: string,
  ids: ReadonlySet<string>,
): Promise<ReadonlyMap<string, string>> {
  const idOf = new Map(Array.from(ids, (id) => [instanceNameOf(namespace, id), id]));
  const names = new Map<string, string>();
  for (const [row, label] of await leases.labels([...idOf.keys()])) names.set(idOf.get(row) ?? '', textOf(label));
  return names;
}
