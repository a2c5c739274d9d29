// The protected resource: a process of its own that decides the order of events. It trusts no clock of another process.
//
// It records messages in the order in which they arrive, and protects itself as docs/guarantees.md asks: it refuses a fencing
// token that is smaller than one it has seen. It answers each message after the message was recorded, so whatever a client
// does next happens later than the record.
import { createWriteStream } from 'node:fs';
import { createServer } from 'node:net';
import { onMessage } from './json-lines.mjs';

const [, , path, historyFile] = process.argv;
const history = createWriteStream(historyFile);
const largestTokens = new Map();
let sequence = 0;

function record(entry) {
  sequence += 1;
  // Ticks are names of times by this clock. Nothing else is judged by it.
  const wall = entry.event === 'head' ? { wall: Date.now() } : undefined;
  const line = JSON.stringify({ n: sequence, at: Math.round(performance.now() * 1000) / 1000, ...wall, ...entry });
  history.write(`${line}\n`);
}

/**
 * Whether this token may still act on the key. Without a token, every act is accepted. It is too late when somebody has entered since with
 * whom it cannot hold together: after a writer anybody is, and after readers or limited holders those of other modes.
 */
function accepts({ event, key, mode, token }) {
  if (token === null || token === undefined) return true;
  const value = BigInt(token);
  const largest = largestTokens.get(key) ?? { exclusive: -1n, shared: -1n, limited: -1n };
  const isOvertaken = ([other, token]) => value < token && (mode === 'exclusive' || mode !== other);
  if (Object.entries(largest).some(isOvertaken)) return false;
  // Holders of one mode enter in any order.
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
// At the end, or when the coordinator died: this process would otherwise keep their common output open.
process.on('disconnect', () => process.exit());
