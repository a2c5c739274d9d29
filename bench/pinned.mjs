import { spawnSync } from 'node:child_process';

/** Keeps a server on core 0, with all its threads and child processes: the clients have core 1. Answers the server. */
export function pinned(server) {
  const children =
    spawnSync('pgrep', ['-P', String(server.pid)])
      .stdout?.toString()
      .split('\n')
      .filter(Boolean) ?? [];
  for (const pid of [server.pid, ...children]) spawnSync('taskset', ['-a', '-p', '-c', '0', String(pid)]);
  return server;
}
