// A cache may evict whatever an application stores in it.

export const locksEvicted = { name: 'locks evicted', begin: ({ server }) => server.evict() };
