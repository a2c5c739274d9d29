// What an operator of Redis does.

export const clientKill = {
  name: 'CLIENT KILL',
  async begin({ server: { admin } }) {
    await admin.client('KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
    await admin.client('KILL', 'TYPE', 'pubsub');
  },
};
export const clientPause = {
  name: 'CLIENT PAUSE',
  begin: ({ server, duration }) => server.admin.client('PAUSE', duration, 'ALL'),
  // Redis answers when the pause is over.
  end: ({ server }) => server.admin.ping(),
};
export const scriptFlush = { name: 'SCRIPT FLUSH', begin: ({ server }) => server.admin.script('FLUSH') };
export const flushAll = { name: 'FLUSHALL', begin: ({ server }) => server.admin.flushall() };

/** A Cluster moves the locks of one bucket to another master. */
export const slotMoved = { name: 'slot moved', begin: ({ backend, random }) => backend.moveSlot(random) };

/** A reader holds and renews a lock while the keys of its slot move one by one. */
export const slotMigrating = {
  name: 'slot migrating',
  async begin({ subject: { lifetime }, fleet, backend, worker, random, duration }) {
    const key = random.pick(['a', 'b']);
    fleet.send(worker, 'add', { sections: [{ key, mode: 'shared', length: lifetime + 2 * duration }] });
    await backend.moveSlot(random, { key, duration });
  },
};
