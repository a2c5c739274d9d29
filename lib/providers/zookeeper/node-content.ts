import type { Instance } from '../../api/lock-provider.js';
import { isInstanceName } from '../../api/printable.js';

// The name of a node begins with a UUID, and that with the id of the instance. Curator has one, too, and kazoo one without hyphens.
const ID = /^(?:_c_)?([0-9a-f]{8})-?([0-9a-f]{4})/;

/** The content of each node that an instance makes, for those who list its locks, and for operators who use zkCli. */
export function contentFor({ id, name }: Instance): Buffer {
  return Buffer.from(`${id} ${name}`);
}

/** The name of the instance with this id, if it has written this. */
export function instanceNameIn(content: Buffer, id: string): string | undefined {
  const text = content.toString();
  const name = text.slice(id.length + 1);
  return text.startsWith(`${id} `) && isInstanceName(name) ? name : undefined;
}

/** The id of the instance that has made this node; of a node without an id, its name. */
export function instanceIdOf(name: string): string {
  const [, first, second] = ID.exec(name) ?? [];
  return first === undefined || second === undefined ? name : first + second;
}
