import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { reset } from '../../test/servers/reset.mjs';

/** A TCP proxy between one worker and one server, with the faults that a network can have. */
export async function startProxy(port) {
  const links = new Set();
  let refusing = false;
  let frozen = false;
  let delay = 0;
  const dropping = { requests: false, replies: false };

  const listener = createServer((client) => {
    if (refusing) return reset(client);
    const server = connect(port, '127.0.0.1');
    const link = { client, server, isForgotten: false };
    links.add(link);
    forward(link, 'requests');
    forward(link, 'replies');
    for (const socket of [client, server]) {
      socket.setNoDelay(true);
      if (frozen) socket.pause();
      socket.on('error', () => undefined);
      socket.on('close', () => {
        // Neither end learns what happens to the other.
        if (link.isForgotten && !(client.destroyed && server.destroyed)) return;
        client.destroy();
        server.destroy();
        links.delete(link);
      });
    }
  }).listen(0, '127.0.0.1');
  await once(listener, 'listening');

  function forward(link, direction) {
    const [from, to] = direction === 'requests' ? [link.client, link.server] : [link.server, link.client];
    // Each chunk waits for the one before it, so a delay never reorders the bytes. It is counted from the arrival, so delays do not
    // add up, and none lasts longer than this after the fault.
    let previous = Promise.resolve();
    from.on('data', (data) => {
      if (link.isForgotten && direction === 'requests') return reset(from);
      if (link.isForgotten || dropping[direction]) return;
      if (delay === 0 && previous === undefined) return to.write(data);
      const due = performance.now() + delay;
      const current = Promise.resolve(previous).then(async () => {
        const left = due - performance.now();
        if (left > 0) await sleep(left);
        if (!to.destroyed && !link.isForgotten) to.write(data);
        if (previous === current) previous = undefined;
      });
      previous = current;
    });
  }

  const forEachSocket = (act) => {
    for (const { client, server } of links) for (const socket of [client, server]) act(socket);
  };
  const resetAll = () => forEachSocket(reset);
  return {
    port: listener.address().port,
    reset: resetAll,
    /**
     * A NAT that has lost its state: what the server sends vanishes, the next packet of the client is answered by a reset, and the server
     * never notices. New connections work.
     */
    forget() {
      for (const link of links) link.isForgotten = true;
    },
    /** A NAT that has lost its state, and says so to the client alone: the server believes in its connections. */
    resetClients() {
      for (const link of links) {
        link.isForgotten = true;
        reset(link.client);
      }
    },
    delay: (milliseconds) => (delay = milliseconds),
    /** Drops `requests` to the server or `replies` to the client silently. */
    drop: (direction) => (dropping[direction] = true),
    /** Half-open: nothing passes, not even the end of a connection. */
    freeze() {
      frozen = true;
      forEachSocket((socket) => socket.pause());
    },
    refuse() {
      refusing = true;
      resetAll();
    },
    /** Ends all faults. Connections that lost bytes are reset, because their streams are no longer valid. */
    heal() {
      if (dropping.requests || dropping.replies) resetAll();
      Object.assign(dropping, { requests: false, replies: false });
      delay = 0;
      refusing = false;
      frozen = false;
      forEachSocket((socket) => socket.resume());
    },
    async close() {
      const closed = once(listener, 'close');
      listener.close();
      forEachSocket((socket) => socket.destroy());
      await closed;
    },
  };
}
