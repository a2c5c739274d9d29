import { once } from 'node:events';
import { connect } from 'node:net';
import { onMessage } from './json-lines.mjs';

/** Connects a worker or the coordinator to the resource. */
export async function connectToResource(path) {
  const socket = connect(path);
  const answers = new Map();
  let last = 0;
  // Without the resource, nothing can be judged. The coordinator notices that this process has exited.
  socket.on('error', () => process.exit(1));
  onMessage(socket, ({ id, accepted }) => {
    answers.get(id)?.(accepted);
    answers.delete(id);
  });
  await once(socket, 'connect');
  return {
    /** Resolves once the message is recorded, to whether the resource accepted it (`enter` and `write` only). */
    record(message) {
      last += 1;
      const id = last;
      socket.write(`${JSON.stringify({ id, ...message })}\n`);
      return new Promise((resolve) => answers.set(id, resolve));
    },
    /** Does not wait until the message is recorded, which happens some time after this call. */
    send(message) {
      socket.write(`${JSON.stringify(message)}\n`);
    },
    close() {
      socket.end();
    },
  };
}
