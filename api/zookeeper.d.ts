// Public API. Written by "npm run api"; do not edit.

export interface ZooKeeperAcl {
    readonly scheme: string;
    readonly id: string;
    readonly permissions: string;
}

export interface ZooKeeperAuth {
    readonly scheme?: string | undefined;
    readonly credentials: string;
}

export declare class ZooKeeperLockProvider implements LockProvider {
    #private;
    readonly capabilities: LockCapabilities;
    readonly records: Records;
    constructor(options: ZooKeeperLockProviderOptions);
    start(context: ProviderContext): Promise<void>;
    acquire(request: AcquireRequest): Promise<Grant | 'busy'>;
    renew(grant: Grant): Promise<RenewOutcome>;
    release(holder: Holder): Promise<ReleaseOutcome>;
    inspect(key: string): Promise<LockInfo | null>;
    forceRelease(key: string): Promise<boolean>;
    check(): Promise<Finding[]>;
    stop(): Promise<void>;
}

export interface ZooKeeperLockProviderOptions {
    readonly connectString: string;
    readonly chroot?: string | undefined;
    readonly sessionTimeout?: Duration | undefined;
    readonly recipe?: 'read-write' | 'mutex' | undefined;
    readonly auth?: ZooKeeperAuth | undefined;
    readonly acl?: readonly ZooKeeperAcl[] | undefined;
}
