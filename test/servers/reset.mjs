/**
 * Breaks a connection, as a host that has forgotten it does. One that is just being ended is closed instead: asked to reset it in
 * the same tick, Node 20 never closes it at all, and hangs when the process ends.
 */
export function reset(socket) {
  if (socket.writableEnded) socket.destroy();
  else socket.resetAndDestroy();
}
