/** A value in Jute, ZooKeeper's encoding: int, long, boolean, ustring, or buffer. */
export type Field = number | bigint | boolean | string | Uint8Array;

/**
 * Encodes a message, preceded by its length. Numbers are big-endian; strings and buffers are preceded by their lengths.
 */
export function encode(fields: readonly Field[]): Buffer {
  const length = fields.reduce((sum: number, field) => sum + lengthOf(field), 0);
  const message = Buffer.allocUnsafe(4 + length);
  let at = message.writeInt32BE(length);
  for (const field of fields) at = write(message, field, at);
  return message;
}

function lengthOf(field: Field): number {
  if (typeof field === 'number') return 4;
  if (typeof field === 'bigint') return 8;
  if (typeof field === 'boolean') return 1;
  return 4 + Buffer.byteLength(field);
}

function write(message: Buffer, field: Field, at: number): number {
  if (typeof field === 'number') return message.writeInt32BE(field, at);
  if (typeof field === 'bigint') return message.writeBigUInt64BE(BigInt.asUintN(64, field), at);
  if (typeof field === 'boolean') return message.writeUInt8(Number(field), at);
  const start = message.writeInt32BE(Buffer.byteLength(field), at);
  if (typeof field === 'string') return start + message.write(field, start);
  message.set(field, start);
  return start + field.length;
}

/** Decodes a message without its length prefix. Throws if the message is truncated. */
export class JuteReader {
  #at = 0;

  constructor(private readonly message: Buffer) {}

  int(): number {
    return this.message.readInt32BE(this.#pass(4));
  }

  long(): bigint {
    return this.message.readBigInt64BE(this.#pass(8));
  }

  /** Returns a view into the message's memory. A missing value is returned as empty. */
  bytes(): Buffer {
    const start = this.#pass(Math.max(this.int(), 0));
    return this.message.subarray(start, this.#at);
  }

  text(): string {
    return this.bytes().toString();
  }

  texts(): string[] {
    const texts: string[] = [];
    for (let count = this.int(); count > 0; count -= 1) texts.push(this.text());
    return texts;
  }

  #pass(length: number): number {
    const start = this.#at;
    this.#at += length;
    if (this.#at > this.message.length) throw new RangeError('Received a truncated message from ZooKeeper.');
    return start;
  }
}
