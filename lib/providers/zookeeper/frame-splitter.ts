/**
 * In bytes: enough for the names of a million keys. If text or a TLS record arrives instead, its first four bytes look
 * like a larger length.
 */
const LONGEST = 2 ** 28;
/** The size of each message's length prefix, in bytes. */
const PREFIX = 4;

/** Splits a connection's byte stream into messages. */
export class FrameSplitter {
  #chunks: Buffer[] = [];
  #length = 0;
  #needed = PREFIX;

  /** Returns the messages completed by this chunk, without their length prefixes. Throws if a length is implausible. */
  push(chunk: Buffer): Buffer[] {
    const messages: Buffer[] = [];
    this.#chunks.push(chunk);
    this.#length += chunk.length;
    // Concatenate only when a message is complete. Doing so for every chunk would copy a long list of names repeatedly.
    if (this.#length < this.#needed) return messages;
    let rest = this.#chunks.length === 1 ? chunk : Buffer.concat(this.#chunks, this.#length);
    for (;;) {
      this.#needed = PREFIX + (rest.length < PREFIX ? 0 : rest.readUInt32BE());
      if (this.#needed > LONGEST)
        throw new Error(`A message of ${this.#needed} bytes is not a valid ZooKeeper message.`);
      if (rest.length < this.#needed) break;
      messages.push(rest.subarray(PREFIX, this.#needed));
      rest = rest.subarray(this.#needed);
    }
    this.#chunks = [rest];
    this.#length = rest.length;
    return messages;
  }
}
