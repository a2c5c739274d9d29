const SLOTS = 16_384;

/** The hash slot of a tag, as the specification of Redis Cluster has it: CRC16 (XMODEM) of the text in the braces. */
export function hashSlotOf(tag: string): number {
  let crc = 0;
  for (const byte of Buffer.from(tag)) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit += 1) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
  }
  return (crc & 0xffff) % SLOTS;
}
