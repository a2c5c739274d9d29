import type { Instance } from '../../../api/lock-provider.js';
import { isInstanceName } from '../../../api/printable.js';
import { instanceNameOf, labelOf, textOfLabel } from '../table/lock-name.js';
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
  const ofRow = await leases.labels(Array.from(ids, (id) => instanceNameOf(namespace, id)));
  const names = new Map<string, string>();
  for (const id of ids) {
    const label = ofRow.get(instanceNameOf(namespace, id));
    const text = label && textOfLabel(label);
    if (isInstanceName(text)) names.set(id, text);
  }
  return names;
}
