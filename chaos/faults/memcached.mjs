// A cache may evict what an application stores in it.

export const locksEvicted = { name: 'locks evicted', begin: ({ server }) => server.evict() };
