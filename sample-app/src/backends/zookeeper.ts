import { ZooKeeperLockProvider } from 'nestjs-distributed-lock/zookeeper';
import { createClient } from 'node-zookeeper-client';
import type { Backend } from './backend.js';
import { ZooKeeperStock } from './zookeeper-stock.js';

/** Any number of processes on one ZooKeeper, which keeps the locks and the stock. */
export function zookeeper(connectString: string, sessionTimeout = '20s'): Backend {
  const client = createClient(connectString);
  client.connect();
  return {
    locks: { provider: new ZooKeeperLockProvider({ connectString, sessionTimeout }) },
    stock: new ZooKeeperStock(client),
  };
}
