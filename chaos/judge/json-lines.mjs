/** Calls back with each message of a socket that carries one JSON value per line. */
export function onMessage(socket, callback) {
  let rest = '';
  socket.setEncoding('utf8');
  socket.on('data', (text) => {
    const lines = (rest + text).split('\n');
    rest = lines.pop();
    for (const line of lines) callback(JSON.parse(line));
  });
}
