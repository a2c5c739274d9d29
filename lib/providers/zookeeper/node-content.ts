import type { Instance } from '../../api/lock-provider.js';
import { isInstanceName } from '../../api/printable.js';

// Node names begin with a UUID, which begins with the instance id. Curator also uses a UUID; kazoo uses one without
// hyphens.
const ID = /^(?:_c_)?([0-9a-f]{8})-?([0-9a-f]{4})/;

/** The content of every node that an instance creates, for `list` and for operators using zkCli. */
export function contentFor({ id, name }: Instance): Buffer {
  return Buffer.from(`${id} ${name}`);
}

/** Reads the instance's name from a node's content, if the instance with this id wrote it. */
export function instanceNameIn(content: Buffer, id: string): string | undefined {
  const text = content.toString();
  const name = text.slice(id.length + 1);
  return text.startsWith(`${id} `) && isInstanceName(name) ? name : undefined;
}

/** The id of the instance that created the node, or the node's whole name if it contains no id. */
export function instanceIdOf(name: string): string {
  const [, first, second] = ID.exec(name) ?? [];
  return first === undefined || second === undefined ? name : first + second;
}
