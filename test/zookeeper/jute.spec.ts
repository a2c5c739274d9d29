import { jest } from '@jest/globals';
import fc from 'fast-check';
import { FrameSplitter } from '../../lib/providers/zookeeper/frame-splitter.js';
import { encode, type Field, JuteReader } from '../../lib/providers/zookeeper/jute.js';

const bytes = fc.uint8Array({ maxLength: 300 });
const field: fc.Arbitrary<Field> = fc.oneof(
  fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 }),
  fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
  fc.string({ unit: 'binary' }),
  bytes,
);

/** Cuts `whole` after each of these lengths. */
function cut(whole: Buffer, lengths: readonly number[]): Buffer[] {
  const chunks: Buffer[] = [];
  let rest = whole;
  for (const length of lengths) {
    chunks.push(rest.subarray(0, length));
    rest = rest.subarray(length);
  }
  return [...chunks, rest].filter((chunk) => chunk.length > 0);
}

function read(reader: JuteReader, written: Field): unknown {
  if (typeof written === 'number') return reader.int();
  if (typeof written === 'bigint') return reader.long();
  if (typeof written === 'string') return reader.text();
  return new Uint8Array(reader.bytes());
}

describe('Messages of ZooKeeper', () => {
  it('contain what was written', () => {
    fc.assert(
      fc.property(fc.array(field), (fields) => {
        const message = encode(fields);
        expect(message.readInt32BE()).toBe(message.length - 4);
        const reader = new JuteReader(message.subarray(4));
        expect(fields.map((written) => read(reader, written))).toEqual(fields);
      }),
    );
  });

  it('are the same however their stream is cut', () => {
    fc.assert(
      fc.property(fc.array(bytes), fc.array(fc.integer({ min: 1, max: 50 })), (messages, lengths) => {
        const stream = Buffer.concat(messages.flatMap((message) => [encode([message.length]).subarray(4), message]));
        const splitter = new FrameSplitter();
        const found = cut(stream, lengths).flatMap((chunk) => splitter.push(chunk));
        expect(found.map((each) => new Uint8Array(each))).toEqual(messages);
      }),
    );
  });

  it('are read or refused, whatever they contain, and never beyond their end', () => {
    const operation = fc.constantFrom('int', 'long', 'bytes', 'text', 'texts');
    fc.assert(
      fc.property(bytes, fc.array(operation), (content, operations) => {
        // What lies behind it in memory belongs to others.
        const memory = Buffer.concat([content, Buffer.alloc(1_000, 1)]);
        const reader = new JuteReader(memory.subarray(0, content.length));
        let length = 0;
        try {
          for (const each of operations) length += Buffer.from(String(reader[each]())).length > 0 ? 1 : 0;
        } catch (error) {
          expect(error).toBeInstanceOf(RangeError);
        }
        expect(length).toBeLessThanOrEqual(operations.length);
      }),
    );
  });

  it('are refused by their first bytes if another protocol is spoken', () => {
    const records = [0x14, 0x15, 0x16, 0x17].map((type) => Buffer.from([type, 3, 3, 0]));
    for (const start of ['HTTP', 'SSH-', '-ERR', ...records, Buffer.from('ffffffff', 'hex')]) {
      expect(() => new FrameSplitter().push(Buffer.from(start))).toThrow(/is not a valid ZooKeeper message/);
    }
  });

  it('of 8 MB are put together from small packets without being copied for each', () => {
    const message = encode(Array.from({ length: 100_000 }, (_, index) => `key-${index}`.padEnd(76)));
    const splitter = new FrameSplitter();
    const concat = jest.spyOn(Buffer, 'concat');
    const found: Buffer[] = [];
    for (let at = 0; at < message.length; at += 1_000) found.push(...splitter.push(message.subarray(at, at + 1_000)));
    expect(found.map((each) => each.equals(message.subarray(4)))).toEqual([true]);
    expect(concat.mock.calls.length).toBeLessThan(5);
    concat.mockRestore();
  });
});
