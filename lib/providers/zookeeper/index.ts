export { ZooKeeperLockProvider } from './zookeeper-lock-provider.js';
export type { ZooKeeperAcl, ZooKeeperAuth, ZooKeeperLockProviderOptions } from './zookeeper-options.js';
