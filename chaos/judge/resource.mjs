// The protected resource: a process of its own and the only judge of order. No clock of another process is believed.
//
// It records what it is told in the order in which it is told, and guards itself as docs/guarantees.md asks for: it refuses whoever
// comes with a smaller fencing token than it has seen. Each message is answered after it was recorded, so that what a client
// does next is later.
import { createWriteStream } from 'node:fs';
import { createServer } from 'node:net';
import { onMessage } from './lines.mjs';

const [, , path, historyFile] = process.argv;
const history = createWriteStream(historyFile);
const largestTokens = new Map();
let sequence = 0;

function record(entry) {
  sequence += 1;
  const line = JSON.stringify({ n: sequence, at: Math.round(performance.now() * 1000) / 1000, ...entry });
  history.write(`${line}\n`);
}

/**
 * Whether this token may still act on the key; nothing can be said of one that is missing. A reader is too late when a writer has entered
 * since, a writer when anybody has.
 */
function admits({ event, key, mode, token }) {
  if (token === null || token === undefined) return true;
  const mine = BigInt(token);
  const largest = largestTokens.get(key) ?? { exclusive: -1n, shared: -1n };
  if (mine < largest.exclusive || (mode === 'exclusive' && mine < largest.shared)) return false;
  if (event === 'enter') largestTokens.set(key, { ...largest, [mode]: mine });
  return true;
}

const server = createServer((socket) => {
  let speaker;
  onMessage(socket, ({ id, ...message }) => {
    speaker = message.worker ?? speaker;
    const guarded = message.event === 'enter' || message.event === 'write';
    const accepted = guarded ? admits(message) : undefined;
    record(guarded ? { ...message, accepted } : message);
    if (id !== undefined) socket.write(`${JSON.stringify({ id, accepted })}\n`);
  });
  socket.on('error', () => undefined);
  // A dead process claims nothing.
  socket.on('close', () => speaker !== undefined && record({ event: 'gone', worker: speaker }));
});
server.listen(path, () => process.send('ready'));
process.on('message', () => {
  server.close();
  history.end(() => process.disconnect());
});
// At the end, or when whoever has started it is gone: it would keep waiting whoever reads their common output.
process.on('disconnect', () => process.exit());
