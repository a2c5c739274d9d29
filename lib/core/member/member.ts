import type { AcquireRequest, Member } from '../../api/lock-provider.js';
import { MemberRequest } from './member-requests.js';
import { asItIs } from '../hold/releases.js';
import type { ProviderCore } from '../provider-core.js';

/** A provider as one that is built on it sees it. */
export function memberOf(core: ProviderCore): Member {
  const { backend, capabilities, clock, memberRequests, releases } = core;
  return {
    capabilities,
    commandTimeout: backend.commandTimeout,
    acquire(request: AcquireRequest<MemberRequest>) {
      request.state ??= new MemberRequest(request, memberRequests);
      return request.state.ask();
    },
    renew: ({ state }: AcquireRequest<MemberRequest>, lease) => state?.renewNow(lease) ?? Promise.resolve('lost'),
    release(request: AcquireRequest<MemberRequest>, { keepFor, failed }) {
      const intent = { keepUntil: keepFor === 0 ? 0 : clock.now() + keepFor, failed };
      // A request that nobody asked for is released too: the answer shows that the backend is there.
      return request.state?.release(intent) ?? releases.send(request, intent, 0, asItIs);
    },
    unansweredFor: ({ state }: AcquireRequest<MemberRequest>) => state?.unansweredFor ?? 0,
    heldBy: ({ state }: AcquireRequest<MemberRequest>) => state?.heldBy ?? null,
    ...(backend.inspect && { inspect: backend.inspect.bind(backend) }),
    ...(backend.forceRelease && {
      forceRelease: (key: string) => core.queues.forceRelease(key),
    }),
    ...(backend.casStore && { casStore: backend.casStore }),
    ...(backend.records && { records: backend.records }),
    observe(listener) {
      core.observe(listener);
    },
  };
}
