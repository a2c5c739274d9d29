import { spawnSync } from 'node:child_process';

/**
 * Keeps a server with all its threads and child processes on core 0, because the clients use core 1. Returns the
 * server.
 */
export function pinned(server) {
  const children =
    spawnSync('pgrep', ['-P', String(server.pid)])
      .stdout?.toString()
      .split('\n')
      .filter(Boolean) ?? [];
  for (const pid of [server.pid, ...children]) spawnSync('taskset', ['-a', '-p', '-c', '0', String(pid)]);
  return server;
}
