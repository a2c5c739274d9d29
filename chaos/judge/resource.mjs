// The protected resource: a separate process that determines the order of events. It doesn't trust the clock of any
// other process.
//
// It records messages in the order of their arrival, and protects itself as docs/guarantees.md requires: it refuses a
// fencing token that is smaller than one it has seen. It acknowledges each message after recording it, so whatever a
// client does next happens after the record.
import { createWriteStream } from 'node:fs';
import { createServer } from 'node:net';
import { onMessage } from './json-lines.mjs';

const [, , path, historyFile] = process.argv;
const history = createWriteStream(historyFile);
const largestTokens = new Map();
let sequence = 0;

function record(entry) {
  sequence += 1;
  // Ticks are named by the time on this clock. It is used for nothing else.
  const wall = entry.event === 'head' ? { wall: Date.now() } : undefined;
  const line = JSON.stringify({ n: sequence, at: Math.round(performance.now() * 1000) / 1000, ...wall, ...entry });
  history.write(`${line}\n`);
}

/**
 * Whether this token may still act on the key. Without a token, every act is accepted. A token is too old once a
 * conflicting holder with a larger token has entered: after a writer, any older token; after readers or limited
 * holders, an older token of another mode.
 */
function accepts({ event, key, mode, token }) {
  if (token === null || token === undefined) return true;
  const value = BigInt(token);
  const largest = largestTokens.get(key) ?? { exclusive: -1n, shared: -1n, limited: -1n };
  const isOvertaken = ([other, token]) => value < token && (mode === 'exclusive' || mode !== other);
  if (Object.entries(largest).some(isOvertaken)) return false;
  // Holders in the same mode enter in any order.
  if (event === 'enter' && value > largest[mode]) largestTokens.set(key, { ...largest, [mode]: value });
  return true;
}

const server = createServer((socket) => {
  let worker;
  onMessage(socket, ({ id, ...message }) => {
    worker = message.worker ?? worker;
    const isGuarded = message.event === 'enter' || message.event === 'write';
    const accepted = isGuarded ? accepts(message) : undefined;
    record(isGuarded ? { ...message, accepted } : message);
    if (id !== undefined) socket.write(`${JSON.stringify({ id, accepted })}\n`);
  });
  socket.on('error', () => undefined);
  // A dead process holds nothing.
  socket.on('close', () => worker !== undefined && record({ event: 'gone', worker }));
});
server.listen(path, () => process.send('ready'));
process.on('message', () => {
  server.close();
  history.end(() => process.disconnect());
});
// At the end of the run, or when the coordinator has died: otherwise this process would keep their shared output open.
process.on('disconnect', () => process.exit());
