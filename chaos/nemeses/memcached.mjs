// What a cache does to who takes it for a store.

export const locksEvicted = { name: 'locks evicted', begin: ({ server }) => server.evict() };
