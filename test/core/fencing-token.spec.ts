import { firstToken } from '../../lib/core/toolkit/fencing-token.js';

describe('the token of a grant', () => {
  it('is the first of the block that ends with the last one', () => {
    expect(firstToken('exclusive', 107n, 8)).toBe(100n);
    expect(firstToken('exclusive', 107n, 1)).toBe(107n);
    expect(firstToken('shared', 107n)).toBe(107n);
  });

  it('is null for a limited lock, whose holders go side by side', () => {
    expect(firstToken('limited', 107n, 8)).toBeNull();
  });
});
