import { LockConfigError } from '../../lib/api/errors.js';
import { RedlockLockProvider, type RedlockLockProviderOptions } from '../../lib/providers/redlock/index.js';

const NODES = ['a', 'b', 'c'].map((host) => ({ url: `redis://${host}` }));
const GOOD: RedlockLockProviderOptions = { nodes: NODES, maxLease: '30s' };

describe('what a RedlockLockProvider is made of', () => {
  it.each<[string, unknown]>([
    ['"nodes" is undefined: is the variable set?', { ...GOOD, nodes: undefined }],
    ['at least three independent', { ...GOOD, nodes: 'redis://a,redis://b,redis://c' }],
    ['at least three independent', { ...GOOD, nodes: [] }],
    ['at least three independent', { ...GOOD, nodes: NODES.slice(1) }],
    ['node 2', { ...GOOD, nodes: [NODES[0], undefined, NODES[2]] }],
    ['node 2', { ...GOOD, nodes: [NODES[0], {}, NODES[2]] }],
    ['node 3', { ...GOOD, nodes: [NODES[0], NODES[1], 'redis://c'] }],
    ['node 3', { ...GOOD, nodes: [NODES[0], NODES[1], { client: null }] }],
    ['node 3', { ...GOOD, nodes: [NODES[0], NODES[1], { options: 'c' }] }],
    ['node 3', { ...GOOD, nodes: [NODES[0], NODES[1], { url: 'redis://c', options: { host: 'c' } }] }],
    ['maxLease', { ...GOOD, maxLease: Number.NaN }],
    ['maxLease', { ...GOOD, maxLease: Infinity }],
    ['maxLease', { ...GOOD, maxLease: -1 }],
    ['maxLease', { ...GOOD, maxLease: 99 }],
    ['maxLease', { ...GOOD, maxLease: 'soon' }],
    [
      `RedlockLockProvider: "maxLease" is '25d', but must be a duration of 100 ms to 24.8 days`,
      { ...GOOD, maxLease: '25d' },
    ],
    ['commandTimeout', { ...GOOD, commandTimeout: 49 }],
    ['commandTimeout', { ...GOOD, commandTimeout: Infinity }],
  ])('is refused for %s: %j', (message, options) => {
    const make = () => new RedlockLockProvider(options as RedlockLockProviderOptions);
    expect(make).toThrow(LockConfigError);
    expect(make).toThrow(message);
  });
});
