import { once } from 'node:events';
import { ACL, type Client, CreateMode, createClient, Id, type Stat } from 'node-zookeeper-client';

/** An operator that reads and changes ZooKeeper behind the backs of all providers. */
export class ZooKeeperAdmin {
  private constructor(readonly client: Client) {}

  static async connect(connectString: string, credentials?: string): Promise<ZooKeeperAdmin> {
    const client = createClient(connectString);
    if (credentials !== undefined) client.addAuthInfo('digest', Buffer.from(credentials));
    client.connect();
    await once(client, 'connected');
    return new ZooKeeperAdmin(client);
  }

  /** Returns names without the folder, and an empty array if the folder doesn't exist. */
  children(folder: string): Promise<string[]> {
    return new Promise((resolve, reject) => {
      this.client.getChildren(folder, (error, names) => {
        if (!error) resolve(names);
        else if ('code' in error && error.code === -101) resolve([]);
        else reject(error);
      });
    });
  }

  /** Returns all nodes at and below the path. */
  async tree(path: string): Promise<string[]> {
    if (!(await this.stat(path))) return [];
    const below = await Promise.all((await this.children(path)).map((name) => this.tree(`${path}/${name}`)));
    return [path, ...below.flat()];
  }

  stat(path: string): Promise<Stat | null> {
    return new Promise((resolve, reject) => {
      this.client.exists(path, (error, stat: Stat | null) => {
        if (error) reject(error);
        else resolve(stat);
      });
    });
  }

  read(path: string): Promise<string> {
    return new Promise((resolve, reject) => {
      this.client.getData(path, (error, data) => {
        if (error) reject(error);
        else resolve(data.toString());
      });
    });
  }

  /** Resolves to the path of the created node. */
  create(path: string, mode = CreateMode.PERSISTENT): Promise<string> {
    return new Promise((resolve, reject) => {
      this.client.create(path, mode, (error, created) => {
        if (error) reject(error);
        else resolve(created);
      });
    });
  }

  write(path: string, text: string): Promise<void> {
    return new Promise((resolve, reject) => {
      this.client.setData(path, Buffer.from(text), (error) => {
        if (error) reject(error);
        else resolve();
      });
    });
  }

  /** Gives everyone these permissions of `cdrwa` on the node, and no others. */
  allow(path: string, permissions: string): Promise<void> {
    const bits = { r: 1, w: 2, c: 4, d: 8, a: 16 };
    const all = Array.from(permissions, (letter) => bits[letter as keyof typeof bits]).reduce((sum, bit) => sum | bit);
    return new Promise((resolve, reject) => {
      this.client.setACL(path, [new ACL(all, new Id('world', 'anyone'))], (error) => {
        if (error) reject(error);
        else resolve();
      });
    });
  }

  remove(path: string): Promise<void> {
    return new Promise((resolve, reject) => {
      this.client.remove(path, (error) => {
        if (error) reject(error);
        else resolve();
      });
    });
  }

  close(): void {
    this.client.close();
  }
}
