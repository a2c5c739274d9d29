import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { reset } from '../../test/servers/reset.mjs';

/** A wire between one worker and one server, and the ways in which it fails. */
export async function startWire(port) {
  const links = new Set();
  let refusing = false;
  let frozen = false;
  let delay = 0;
  const lost = { up: false, down: false };

  const listener = createServer((client) => {
    if (refusing) return reset(client);
    const server = connect(port, '127.0.0.1');
    const link = { client, server };
    links.add(link);
    carry(client, server, 'up');
    carry(server, client, 'down');
    for (const socket of [client, server]) {
      socket.setNoDelay(true);
      if (frozen) socket.pause();
      socket.on('error', () => undefined);
      socket.on('close', () => {
        client.destroy();
        server.destroy();
        links.delete(link);
      });
    }
  }).listen(0, '127.0.0.1');
  await once(listener, 'listening');
  function carry(from, to, direction) {
    // One after the other: a delayed wire keeps its order.
    let before = Promise.resolve();
    from.on('data', (data) => {
      if (lost[direction]) return;
      if (delay === 0 && before === undefined) return to.write(data);
      const due = delay;
      const mine = Promise.resolve(before).then(async () => {
        if (due > 0) await sleep(due);
        if (!to.destroyed) to.write(data);
        if (before === mine) before = undefined;
      });
      before = mine;
    });
  }

  const each = (act) => {
    for (const { client, server } of links) for (const socket of [client, server]) act(socket);
  };
  const breakAll = () => each(reset);
  return {
    port: listener.address().port,
    reset: breakAll,
    delay: (milliseconds) => (delay = milliseconds),
    /** Loses what goes `up` to the server or `down` to the client, without a word. */
    lose: (direction) => (lost[direction] = true),
    /** Half-open: nothing passes, not even the end of a connection. */
    freeze() {
      frozen = true;
      each((socket) => socket.pause());
    },
    refuse() {
      refusing = true;
      breakAll();
    },
    /** As new. Where bytes were lost, the connections are broken with them. */
    heal() {
      if (lost.up || lost.down) breakAll();
      Object.assign(lost, { up: false, down: false });
      delay = 0;
      refusing = false;
      frozen = false;
      each((socket) => socket.resume());
    },
    async close() {
      const closed = once(listener, 'close');
      listener.close();
      each((socket) => socket.destroy());
      await closed;
    },
  };
}
