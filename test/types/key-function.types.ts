// Compiled by `npm run typecheck`, never run.
import { lockKey } from '../../lib/key/key-tag.js';

// @ts-expect-error: an object cannot stand in a key
void lockKey`order:${{ id: 1 }}`;
// @ts-expect-error: what may be missing cannot stand in a key
void lockKey`order:${undefined as string | undefined}`;
