// Public API. Written by "npm run api"; do not edit.

export interface AcquireRequest extends Holder {
    readonly lease: number;
    readonly renew: boolean;
    readonly minHold: number;
    readonly wait: number;
    readonly depth?: number;
    readonly signal: AbortSignal;
}

export interface BackendContext {
    readonly name: string;
    readonly namespace: string;
    readonly clock: Clock;
    readonly random: Random;
    readonly logger: LockLogger;
    emit(event: BackendEvent): void;
    member(name: string): Member;
}

export type BackendEvent = {
    readonly type: 'lost';
    readonly holder: string;
    readonly cause?: unknown;
} | {
    readonly type: 'waiting';
    readonly holder: string;
} | {
    readonly type: 'unavailable';
    readonly cause: unknown;
} | {
    readonly type: 'recovered';
} | {
    readonly type: 'failover';
    readonly to: string;
    readonly epoch: number;
    readonly reason: 'failure' | 'failback' | 'manual';
};

export interface CasStore {
    compareAndSet(name: string, expected: string | null, next: string): Promise<string | null>;
}

export interface Clock {
    now(): number;
    uptime(): number;
    wallTime(): number;
    setTimer(callback: () => void, delay: number, keepAlive?: boolean): Timer;
    clearTimer(timer: Timer): void;
}

export interface ConformanceCase {
    readonly id: string;
    readonly title: string;
    readonly notRun: Obstacle | undefined;
    readonly alone: boolean;
    run(): Promise<void>;
}

export interface Diagnostic {
    readonly severity: 'warning' | 'error';
    readonly message: string;
}

export interface Grant extends Holder {
    readonly fencingToken: bigint | null;
    readonly validUntil: number;
    readonly lease: number;
}

export interface Holder {
    readonly key: string;
    readonly holder: string;
    readonly mode: LockMode;
}

export interface LockBackend {
    readonly capabilities: LockCapabilities;
    connect(): Promise<void>;
    acquire(attempt: AcquireRequest): Promise<Grant | 'busy'>;
    renew(grant: Grant, lease: number): Promise<RenewOutcome>;
    release(holder: Holder, options: ReleaseOptions): Promise<ReleaseOutcome>;
    inspect?(key: string): Promise<LockInfo | null>;
    forceRelease?(key: string): Promise<boolean>;
    diagnose?(): Promise<readonly Diagnostic[]>;
    readonly casStore?: CasStore;
    close(): Promise<void>;
}

export interface LockCapabilities {
    readonly shared: boolean;
    readonly fair: boolean;
    readonly fencing: boolean;
    readonly wideTokens?: boolean;
    readonly lease: 'per-lock' | 'session';
    readonly maxLease?: number;
    readonly minHold: boolean;
    readonly forceRelease: boolean;
    readonly queue: 'backend' | 'local';
}

export interface LockLogger {
    debug(message: string): void;
    warn(message: string): void;
    error(message: string): void;
}

export interface LockProvider {
    readonly members?: readonly string[];
    createBackend(context: BackendContext): LockBackend;
}

export interface Member extends Pick<LockBackend, 'capabilities' | 'acquire' | 'renew' | 'inspect' | 'forceRelease' | 'casStore'> {
    release(lock: Grant | AcquireRequest, options: ReleaseOptions): Promise<ReleaseOutcome>;
    observe(listener: (event: BackendEvent) => void): void;
}

export interface Obstacle {
    readonly reason: string;
    readonly byDesign: boolean;
}

export interface ProviderBounds {
    readonly handoff: number;
    readonly expiry: number;
    readonly takeOver: number;
    readonly deadWaiter: number;
    readonly noAnswer: number;
    readonly recovery: number;
    readonly cleanUp: number;
}

export interface ProviderFaults {
    revoke?(namespace: string, key: string): Promise<unknown>;
    cutOff?(provider: LockProvider): Promise<unknown>;
    restore?(provider: LockProvider): Promise<unknown>;
}

export interface ProviderHarness {
    readonly capabilities: LockCapabilities;
    create(): LockProvider | Promise<LockProvider>;
    readonly lease?: number;
    readonly clock?: FakeClock;
    readonly faults?: ProviderFaults;
    remainingLocks?(namespace: string): Promise<number>;
    readonly bounds?: Partial<ProviderBounds>;
    readonly concurrency?: number;
    readonly seed?: number;
}

export interface Random {
    id(): string;
    fraction(): number;
}

export interface ReleaseOptions {
    readonly keepFor: number;
    readonly failed: boolean;
}

export type ReleaseOutcome = 'released' | 'lost' | 'unknown' | Uncommitted;

export type RenewOutcome = {
    readonly validUntil: number;
} | 'lost' | 'unknown';

export declare class SuspensionDetector {
    #private;
    private readonly sampleEvery;
    constructor(clock: Clock, sampleEvery?: number);
    observe(): number;
    observeGrant(now: number): number;
    recent(now: number): number;
    queued(change: 1 | -1): void;
}

export interface TestRunner {
    describe(title: string, body: () => void): unknown;
    readonly it: {
        (title: string, body: () => Promise<void>, timeout: number): unknown;
        skip(title: string, body: () => Promise<void>): unknown;
    };
    readonly afterAll?: (body: () => Promise<void>, timeout: number) => unknown;
    readonly after?: (body: () => Promise<void>) => unknown;
}

export type Timer = object;

export interface Uncommitted {
    readonly written: 'rolled-back' | 'unknown';
    readonly cause: unknown;
}

export declare function backOff(random: Random, round: number, { first, most }: BackOff): number;

export declare function conformanceCases(harness: ProviderHarness): readonly ConformanceCase[];

export declare function describeLockProvider(name: string, harness: ProviderHarness, runner?: TestRunner): void;

export declare function pause(clock: Clock, delay: number, signal: AbortSignal, keepAlive?: boolean): Promise<void>;

export declare const systemClock: Clock;

export declare function systemRandom(): Random;

export declare function validUntil(sentAt: number, lease: number): number;

export declare function withTimeout<T, L = undefined>(clock: Clock, timeout: number, work: PromiseLike<T>, late?: () => L): Promise<T | L>;
