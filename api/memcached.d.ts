// Public API. Written by "npm run api"; do not edit.

export declare class MemcachedLockProvider implements LockProvider {
    #private;
    readonly capabilities: LockCapabilities;
    constructor(options: MemcachedLockProviderOptions);
    start(context: ProviderContext): Promise<void>;
    acquire(request: AcquireRequest): Promise<Grant | 'busy'>;
    renew({ key, holder }: Grant, lease: number): Promise<RenewOutcome>;
    release({ key, holder }: Holder, { keepFor }: ReleaseManner): Promise<ReleaseOutcome>;
    inspect(key: string): Promise<LockInfo | null>;
    forceRelease(key: string): Promise<boolean>;
    check(): Promise<Finding[]>;
    stop(): Promise<void>;
}

export interface MemcachedLockProviderOptions {
    readonly server: string;
    readonly commandTimeout?: Duration | undefined;
}
