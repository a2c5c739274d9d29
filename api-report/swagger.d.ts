// Public API. Written by "npm run api"; do not edit.

export declare function ApiLocked(statuses?: Pick<HttpLockStatuses, 'busy' | 'unavailable'>): MethodDecorator & ClassDecorator;
