import type { Member } from '../../api/lock-provider.js';
import type { ProviderCore } from '../provider-core.js';
import { CoreMemberRequest } from './member-request.js';
import { MemberRequests } from './member-requests.js';

/** A provider's interface to the composite providers that are built on it. */
export function memberOf(core: ProviderCore): Member {
  const { backend, capabilities } = core;
  const requests = (core.memberRequests ??= new MemberRequests(core));
  return {
    capabilities,
    commandTimeout: backend.commandTimeout,
    request: (origin, terms = origin) => new CoreMemberRequest(origin, terms, requests),
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
