import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient, Exception, type Stat } from 'node-zookeeper-client';

/** Sees what lies in ZooKeeper, with a session of its own. */
export interface Observer {
  /** The names of the children of a lock's folder; none when there is no such folder. */
  attemptsIn(path: string): Promise<readonly string[]>;
  /** The session that a node belongs to, while there is such a node. */
  ownerOf(path: string): Promise<string | undefined>;
  close(): void;
}

export async function startObserver(connectString: string): Promise<Observer> {
  const client = createClient(connectString, { sessionTimeout: 20_000 });
  const connected = once(client, 'connected');
  client.connect();
  await connected;
  return {
    attemptsIn: (path) =>
      new Promise((resolve, reject) => {
        client.getChildren(path, (error, names) => {
          if (error instanceof Exception && error.code === Exception.NO_NODE) resolve([]);
          else if (error) reject(error);
          else resolve(names);
        });
      }),
    ownerOf: (path) =>
      new Promise((resolve, reject) => {
        client.exists(path, (error, stat) => {
          if (error) reject(error);
          else resolve((stat as Stat | null)?.ephemeralOwner.toString('hex'));
        });
      }),
    close() {
      client.close();
    },
  };
}

/** Waits for a condition for 30 s at most. Most take milliseconds; the end of a session or an election takes seconds. */
export async function until(isTrue: () => boolean | Promise<boolean>, what: string): Promise<void> {
  for (const end = Date.now() + 30_000; Date.now() < end; await sleep(5)) {
    if (await isTrue()) return;
  }
  throw new Error(`Waited in vain until ${what}.`);
}
