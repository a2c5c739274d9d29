import assert from 'node:assert/strict';
import type { Grant } from '../../api/lock-provider.js';
import { fencing, leaseOfItsOwn, type CaseDefinition } from '../case-definition.js';

/** Tokens that let a resource distinguish a late holder from the current one. */
export const fencingCases: readonly CaseDefinition[] = [
  {
    id: '#35',
    title: 'tokens grow from holder to holder, over processes that come and go',
    needs: [fencing],
    async run(stage) {
      const [ann, bob] = await stage.directs(2);
      const grants: Grant[] = [];
      for (const caller of [ann, ann, bob, bob, ann]) {
        const grant = await caller.take('order');
        grants.push(grant);
        await caller.release(grant);
      }
      await Promise.all([ann.backend.close(), bob.backend.close()]);
      const cid = await stage.direct();
      grants.push(await cid.take('order'));
      if (stage.capabilities.forceRelease) {
        await cid.backend.forceRelease?.('order');
        const dee = await stage.direct();
        grants.push(await dee.take('order', { wait: stage.bounds.handoff }));
      }
      assertGrowing(grants);
    },
  },
  {
    id: '#35b',
    title: 'tokens grow when a lease has ended and somebody else takes over, waiting or not',
    needs: [fencing, leaseOfItsOwn],
    async run(stage) {
      const [ann, bob] = await stage.directs(2);
      const wait = stage.lease + 2 * stage.bounds.takeOver;
      const first = await ann.take('order', { lease: stage.lease });
      const second = await bob.take('order', { lease: stage.lease, wait });
      await stage.leaseEnds();
      const third = await ann.take('order');
      assertGrowing([first, second, third]);
    },
  },
  {
    id: '#36',
    title: 'a hold keeps its token, over renewals and when it is asked for again',
    needs: [fencing],
    async run(stage) {
      const ann = await stage.direct();
      const grant = await ann.take('order');
      await ann.assertRenewable(grant);
      const again = await ann.take('order', { request: grant.request });
      assert.equal(again.fencingToken, grant.fencingToken);
    },
  },
];

function assertGrowing(grants: readonly Grant[]): void {
  const tokens = grants.map(({ fencingToken }) => fencingToken ?? 0n);
  for (const [index, token] of tokens.entries()) {
    assert.ok(index === 0 || token > (tokens[index - 1] ?? 0n), `tokens grow: ${tokens.join(', ')}`);
  }
}
