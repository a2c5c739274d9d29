/** A port of the loopback interface on which nobody listens now. */
export function freePort(): Promise<number>;
