// Public API. Written by "npm run api"; do not edit.

export declare class MemcachedLockProvider implements LockProvider {
    #private;
    constructor(options: MemcachedLockProviderOptions);
    createBackend(context: BackendContext): MemcachedBackend;
}

export interface MemcachedLockProviderOptions {
    readonly server: string;
    readonly commandTimeout?: ConfiguredDuration | undefined;
}
