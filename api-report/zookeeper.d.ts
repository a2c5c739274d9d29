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
    constructor(options: ZooKeeperLockProviderOptions);
    createBackend(context: BackendContext): ZooKeeperBackend;
}

export interface ZooKeeperLockProviderOptions {
    readonly connectString: string;
    readonly chroot?: string | undefined;
    readonly sessionTimeout?: ConfiguredDuration | undefined;
    readonly recipe?: 'read-write' | 'mutex' | undefined;
    readonly auth?: ZooKeeperAuth | undefined;
    readonly acl?: readonly ZooKeeperAcl[] | undefined;
}
