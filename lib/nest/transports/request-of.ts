import type { ExecutionContext } from '@nestjs/common';

/** The value of `#{request…}` on each transport; `undefined` where Nest has no request, or one that is not known here. */
export function requestOf(context: ExecutionContext): unknown {
  switch (context.getType<string>()) {
    case 'http':
      return context.switchToHttp().getRequest();
    case 'rpc':
      return { data: context.switchToRpc().getData<unknown>(), context: context.switchToRpc().getContext<unknown>() };
    case 'ws':
      return { client: context.switchToWs().getClient<unknown>(), data: context.switchToWs().getData<unknown>() };
    case 'graphql':
      // Nest's GqlExecutionContext reads them at these places: root, args, context, info.
      return { args: context.getArgByIndex<unknown>(1), context: context.getArgByIndex<unknown>(2) };
    default:
      return undefined;
  }
}
