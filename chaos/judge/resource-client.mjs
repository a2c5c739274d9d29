import { once } from 'node:events';
import { connect } from 'node:net';
import { onMessage } from './lines.mjs';

/** The way to the resource, for a worker or the coordinator. */
export async function connectToResource(path) {
  const socket = connect(path);
  const answers = new Map();
  let last = 0;
  // Without a judge there is nothing to prove; the coordinator sees how this process ends.
  socket.on('error', () => process.exit(1));
  onMessage(socket, ({ id, accepted }) => {
    answers.get(id)?.(accepted);
    answers.delete(id);
  });
  await once(socket, 'connect');
  return {
    /** Resolves when it is recorded: to whether it was accepted, where the resource has a say. */
    tell(message) {
      last += 1;
      const id = last;
      socket.write(`${JSON.stringify({ id, ...message })}\n`);
      return new Promise((resolve) => answers.set(id, resolve));
    },
    /** Recorded at some time after this call. */
    post(message) {
      socket.write(`${JSON.stringify(message)}\n`);
    },
    close() {
      socket.end();
    },
  };
}
