/** In bytes. The names of a million keys are shorter; the first four bytes of a text or of a TLS record, read as a length, are longer. */
const LONGEST = 2 ** 28;
/** The length of a message, which precedes it. */
const PREFIX = 4;

/** Cuts the stream of a connection into messages. */
export class FrameSplitter {
  #chunks: Buffer[] = [];
  #length = 0;
  #needed = PREFIX;

  /** The messages that end in this chunk, without their lengths. Throws if the stream cannot be one of messages. */
  push(chunk: Buffer): Buffer[] {
    const messages: Buffer[] = [];
    this.#chunks.push(chunk);
    this.#length += chunk.length;
    // Joined only once a message is complete: joined chunk by chunk, a long list of names would be copied as often as it has chunks.
    if (this.#length < this.#needed) return messages;
    let rest = this.#chunks.length === 1 ? chunk : Buffer.concat(this.#chunks, this.#length);
    for (;;) {
      this.#needed = PREFIX + (rest.length < PREFIX ? 0 : rest.readUInt32BE());
      if (this.#needed > LONGEST) throw new Error(`A message of ${this.#needed} bytes cannot come from ZooKeeper.`);
      if (rest.length < this.#needed) break;
      messages.push(rest.subarray(PREFIX, this.#needed));
      rest = rest.subarray(this.#needed);
    }
    this.#chunks = [rest];
    this.#length = rest.length;
    return messages;
  }
}
