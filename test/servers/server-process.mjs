// What every server that the tests start has in common. Plain JavaScript, as its users are.
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { connect, createServer } from 'node:net';

/** Whether the server on `port` greets: it is sent `hello`, and its first bytes must match `answer`. */
export function answers(port, { hello, answer }) {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => {
      if (hello !== '') socket.write(hello);
    });
    socket.once('data', (data) => finish(answer.test(data.toString('latin1'))));
    socket.once('error', () => finish(false));
    socket.setTimeout(500, () => finish(false));
    function finish(isUp) {
      socket.destroy();
      resolve(isUp);
    }
  });
}

const SETPRIV = '/usr/bin/setpriv';

/**
 * The command that runs this program so that the kernel ends it with us, whatever ends us: below Jest `process` is a copy, whose
 * 'exit' never comes, so a hook that runs into its time-out would leave its server behind. On Linux alone.
 */
export function tiedToUs(program, args) {
  return existsSync(SETPRIV) ? [SETPRIV, ['--pdeathsig', 'KILL', program, ...args]] : [program, args];
}

/** Ends the process, unless it has ended, and waits for that. */
export async function end(child, signal) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'exit');
  child.ref();
  child.kill(signal);
  await ended;
}

/** A port of the loopback interface on which nobody listens now. */
export async function freePort() {
  const listener = createServer().listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const { port } = listener.address();
  listener.close();
  await once(listener, 'close');
  return port;
}
