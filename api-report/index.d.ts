// Public API. Written by "npm run api"; do not edit.

export interface AcquireTrace extends LockEvent {
    error?: unknown;
    cancelled?: true;
}

export type BackendClass<B extends LockBackend> = abstract new (...args: never[]) => B;

export interface BusyContext {
    readonly keys: readonly string[];
    readonly provider: string;
    readonly method: string;
    readonly args: readonly unknown[];
    readonly error: LockBusyError;
}

export type ClassLockDefaults = Pick<LockOptions, 'wait' | 'lease' | 'maxHold' | 'reentrant' | 'onLost' | 'provider'>;

export declare class CombinedProvider implements LockProvider {
    readonly members: readonly string[];
    constructor(options: CombinedProviderOptions);
    createBackend(context: BackendContext): CombinedBackend;
}

export interface CombinedProviderOptions {
    readonly providers: readonly string[];
}

export type ConfiguredDuration = number | string;

export declare function DistributedLock(key: string | readonly string[], options: Skipping): SkippableLockDecorator;
export declare function DistributedLock<A extends readonly unknown[]>(key: KeyFunction<A>, options: Skipping): SkippableLockDecorator<A>;
export declare function DistributedLock(key: string | readonly string[], options?: NotSkipping): LockDecorator;
export declare function DistributedLock<A extends readonly unknown[]>(key: KeyFunction<A>, options?: NotSkipping): LockDecorator<A>;

export declare class DistributedLockModule extends ConfigurableModuleClass {
    static forRoot(options?: typeof OPTIONS_TYPE): DynamicModule;
    static forRootAsync(options: typeof ASYNC_OPTIONS_TYPE): DynamicModule;
}

export interface DistributedLockModuleExtras {
    isGlobal?: boolean;
    names?: readonly string[];
}

export interface DistributedLockModuleOptions {
    provider?: LockProvider | undefined;
    providers?: Readonly<Record<string, LockProvider>> | undefined;
    default?: string | undefined;
    namespace?: string | undefined;
    defaults?: LockDefaults | undefined;
    context?: KeyContext | undefined;
    mapErrors?: false | {
        http?: HttpLockStatuses;
    } | undefined;
    shutdownGrace?: ConfiguredDuration | undefined;
    failFast?: boolean | undefined;
    maxWaiters?: number | undefined;
}

export interface DistributedLockOptions extends Omit<LockOptions, 'signal'> {
    onBusy?: 'throw' | 'skip' | ((busy: BusyContext) => unknown) | undefined;
    around?: 'method' | 'request' | undefined;
}

export interface DistributedLockOptionsFactory {
    createDistributedLockOptions(): DistributedLockModuleOptions | Promise<DistributedLockModuleOptions>;
}

export type Duration = number | `${number}${Unit}`;

export declare class FailoverBackend implements LockBackend {
    #private;
    private readonly settings;
    private readonly context;
    private readonly members;
    readonly capabilities: LockCapabilities;
    constructor(settings: FailoverSettings, context: BackendContext, members: ReadonlyMap<string, Member>, casStore: CasStore, fencing: boolean);
    connect(): Promise<void>;
    close(): Promise<void>;
    acquire(request: AcquireRequest): Promise<Grant | 'busy'>;
    renew({ holder }: Grant): Promise<RenewOutcome>;
    release({ holder }: Holder, options: ReleaseOptions): Promise<ReleaseOutcome>;
    inspect(key: string): Promise<LockInfo | null>;
    forceRelease(key: string): Promise<boolean>;
    diagnose(): Promise<readonly Diagnostic[]>;
    get state(): FailoverState;
    switchTo(provider: string): Promise<void>;
    get size(): number;
}

export declare class FailoverProvider implements LockProvider {
    #private;
    readonly members: readonly string[];
    constructor(options: FailoverProviderOptions);
    createBackend(context: BackendContext): FailoverBackend;
}

export interface FailoverProviderOptions {
    readonly providers: readonly string[];
    readonly casStore: string;
    readonly window?: ConfiguredDuration | undefined;
    readonly probeInterval?: ConfiguredDuration | undefined;
    readonly failbackDelay?: ConfiguredDuration | undefined;
}

export interface FailoverState {
    readonly active: string | null;
    readonly epoch: number;
    readonly providers: Readonly<Record<string, ProviderState>>;
    readonly history: readonly ProviderSwitch[];
}

export interface HeldLock {
    readonly key: string;
    readonly provider: string;
    readonly mode: LockMode;
    readonly method: string | null;
    readonly acquiredAt: Date;
    readonly fencingToken: bigint | null;
    readonly remaining: number;
    readonly entries: number;
}

export interface HoldTrace extends LockEvent {
    readonly fencingToken: bigint | null;
    result?: 'released' | 'pending';
    error?: LockLostError;
}

export interface HttpLockStatuses {
    readonly busy?: number;
    readonly unavailable?: number;
    readonly lost?: number;
    readonly conflict?: number;
}

export declare function InjectLockService(provider: string): ParameterDecorator & PropertyDecorator;

export type KeyContext = Readonly<Record<string, () => string | number | bigint | boolean>>;

export type KeyFunction<A extends readonly unknown[]> = (...args: A) => LockKey;

export type KeyValue = string | number | bigint | boolean | Date;

export interface Lock extends AsyncDisposable {
    readonly key: string;
    readonly keys: readonly string[];
    readonly provider: string;
    readonly mode: LockMode;
    readonly holder: string;
    readonly acquiredAt: Date;
    readonly fencingToken: bigint | null;
    readonly fencingTokens: ReadonlyMap<string, bigint | null>;
    readonly signal: AbortSignal;
    remaining(): number;
    isHeld(): boolean;
    assertHeld(): void;
    extend(lease?: Duration): Promise<void>;
    run<T>(task: () => T): T;
    release(): Promise<ReleaseResult>;
}

export declare class LockAdmin {
    private readonly manager;
    constructor(manager: LockManager);
    inspect(key: string, provider?: string): Promise<LockInfo | null>;
    forceRelease(key: string, provider?: string): Promise<boolean>;
    backend<B extends LockBackend>(kind: BackendClass<B>, provider?: string): B;
    held(): HeldLock[];
    waiting(): WaitingLock[];
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

export declare class LockBusyError extends LockError {
    readonly code = "LOCK_BUSY";
    readonly waited: number;
    constructor(message: string, details?: LockErrorDetails & {
        waited?: number | undefined;
    });
}

export declare class LockCapacityError extends LockError {
    readonly code = "LOCK_CAPACITY";
}

export declare class LockConfigError extends LockError {
    readonly code = "LOCK_CONFIG";
}

export declare class LockDeadlockError extends LockError {
    readonly code = "LOCK_DEADLOCK";
}

export interface LockDecorator<A extends readonly unknown[] = readonly []> {
    (target: never, method: never, descriptor: never): void;
    <M extends (...args: never[]) => LockableResult, P extends readonly [...A, ...unknown[]]>(target: Prototype, method: string | symbol, descriptor: TypedPropertyDescriptor<M> & Supplies<M, A> & {
        value?: (...args: P) => unknown;
    }): void;
}

export interface LockDefaults extends Pick<LockOptions, 'reentrant' | 'onLost'> {
    wait?: ConfiguredDuration | undefined;
    lease?: ConfiguredDuration | undefined;
    maxHold?: ConfiguredDuration | undefined;
}

export declare function LockDefaults(defaults: ClassLockDefaults): ClassDecorator;

export declare abstract class LockError extends Error {
    abstract readonly code: string;
    readonly key: string | null;
    readonly provider: string | null;
    constructor(message: string, details?: LockErrorDetails);
    static is(error: unknown): error is LockError;
}

export interface LockErrorDetails {
    readonly key?: string | null | undefined;
    readonly provider?: string | null | undefined;
    readonly cause?: unknown;
}

export interface LockErrorExtensions {
    readonly code: string;
    readonly retryAfter?: number;
}

export declare class LockErrorFilter implements ExceptionFilter<LockError | LockHttpException> {
    private readonly options;
    private readonly host;
    constructor(options: DistributedLockModuleOptions, host: HttpAdapterHost);
    catch(thrown: LockError | LockHttpException, host: ArgumentsHost): unknown;
    protected seenByFilters(thrown: LockError | LockHttpException, host: ArgumentsHost): LockError | LockHttpException;
}

export interface LockEvent {
    readonly key: string;
    readonly provider: string;
    readonly mode: LockMode;
    readonly method: string | null;
    readonly template: string | null;
}

export type LockEventListener<N extends LockEventName> = (event: LockEventMap[N]) => void;

export interface LockEventMap {
    waiting: LockEvent;
    acquired: LockEvent & {
        readonly waited: number;
        readonly fencingToken: bigint | null;
    };
    released: LockEvent & {
        readonly held: number;
    };
    renewed: LockEvent & {
        readonly remaining: number;
    };
    'renewal-failed': LockEvent & {
        readonly remaining: number;
    };
    lost: LockEvent & {
        readonly held: number;
        readonly reason: LossReason;
    };
    busy: LockEvent & {
        readonly waited: number;
    };
    skipped: LockEvent;
    'release-pending': LockEvent;
    unavailable: {
        readonly provider: string;
        readonly cause: unknown;
    };
    failover: {
        readonly provider: string;
        readonly to: string;
        readonly epoch: number;
        readonly reason: 'failure' | 'failback' | 'manual';
    };
}

export type LockEventName = keyof LockEventMap;

export interface LockEventTarget {
    emit(name: string, event: unknown): unknown;
}

export interface LockEvents {
    on<N extends LockEventName>(name: N, listener: LockEventListener<N>): this;
    once<N extends LockEventName>(name: N, listener: LockEventListener<N>): this;
    off<N extends LockEventName>(name: N, listener: LockEventListener<N>): this;
}

export type LockFor<M extends Method> = KeyFunction<Parameters<M>>;
export declare function LockFor<M extends Method>(key: LockFor<M>): LockFor<M>;

export declare class LockGraphqlError extends Error {
    readonly extensions: LockErrorExtensions;
    readonly name = "LockGraphqlError";
    constructor(message: string, extensions: LockErrorExtensions, cause: LockError);
}

export declare class LockHttpException extends HttpException {
    readonly retryAfter: number | undefined;
    constructor(error: LockError, status: number, { message, code, retryAfter }: ClientError);
}

export interface LockInfo {
    readonly key: string;
    readonly state: 'held' | 'retained';
    readonly mode: LockMode;
    readonly holders: number;
    readonly waiters: number | null;
    readonly expiresIn: number | null;
    readonly fencingToken: bigint | null;
}

export declare class LockInterceptor implements NestInterceptor {
    #private;
    private readonly options;
    private readonly service;
    private readonly host;
    constructor(options: DistributedLockModuleOptions, service: LockService, host: HttpAdapterHost);
    intercept(context: ExecutionContext, next: CallHandler): Observable<unknown>;
}

export type LockKey = string | readonly string[];

export declare class LockKeyError extends LockError {
    readonly code = "LOCK_KEY";
}

export interface LockLogger {
    debug(message: string): void;
    warn(message: string): void;
    error(message: string): void;
}

export declare class LockLostError extends LockError {
    readonly code = "LOCK_LOST";
    readonly reason: LossReason;
    readonly outcome: TaskOutcome | undefined;
    constructor(message: string, details: LockErrorDetails & {
        reason: LossReason;
        outcome?: TaskOutcome | undefined;
    });
}

export declare class LockManager {
    #private;
    readonly events: LockEvents;
    constructor(options: LockManagerOptions);
    get providerNames(): string[];
    start(): Promise<void>;
    acquire(key: LockKey, options?: LockOptions): Promise<Lock>;
    tryAcquire(key: LockKey, options?: LockOptions): Promise<Lock | null>;
    withLock<T>(key: LockKey, task: (lock: Lock) => T | PromiseLike<T>, options?: LockOptions): Promise<T>;
    acquirePlanned(plan: LockPlan, key: LockKey, signal?: AbortSignal): Promise<GrantedLock>;
    plan(options: LockOptions, origin?: LockOrigin): LockPlan;
    current(key?: string): Lock | undefined;
    detached<T>(task: () => T): T;
    inspect(key: string, provider?: string): Promise<LockInfo | null>;
    forceRelease(key: string, provider?: string): Promise<boolean>;
    backend<B extends LockBackend>(kind: BackendClass<B>, provider?: string): B;
    held(): HeldLock[];
    waiting(): WaitingLock[];
    stop(): Promise<void>;
}

export interface LockManagerOptions {
    readonly providers: Readonly<Record<string, LockProvider>>;
    readonly default?: string | undefined;
    readonly namespace?: string | undefined;
    readonly defaults?: LockDefaults | undefined;
    readonly shutdownGrace?: ConfiguredDuration | undefined;
    readonly failFast?: boolean | undefined;
    readonly maxWaiters?: number | undefined;
    readonly logger?: LockLogger | undefined;
    readonly clock?: Clock | undefined;
    readonly random?: Random | undefined;
}

export type LockMode = 'exclusive' | 'shared';

export interface LockOptions {
    provider?: string | undefined;
    mode?: LockMode | undefined;
    wait?: Duration | undefined;
    lease?: Duration | undefined;
    renew?: boolean | undefined;
    maxHold?: Duration | undefined;
    minHold?: Duration | undefined;
    reentrant?: boolean | undefined;
    onLost?: LossPolicy | undefined;
    signal?: AbortSignal | undefined;
}

export interface LockProblem {
    readonly title: string;
    readonly status: number;
    readonly detail: string;
    readonly code: string;
}

export interface LockProvider {
    readonly members?: readonly string[];
    createBackend(context: BackendContext): LockBackend;
}

export declare class LockService {
    #private;
    private readonly provider?;
    constructor(manager: LockManager, context?: KeyContext, provider?: string | undefined, siblings?: Map<string, LockService>);
    acquire(key: LockKey, options?: LockOptions): Promise<Lock>;
    tryAcquire(key: LockKey, options?: LockOptions): Promise<Lock | null>;
    withLock<T>(key: LockKey, task: (lock: Lock) => T | PromiseLike<T>, options?: LockOptions): Promise<T>;
    current(key?: string): Lock | undefined;
    detached<T>(task: () => T): T;
    via(provider: string): LockService;
    get events(): LockEvents;
}

export declare class LockUnavailableError extends LockError {
    readonly code = "LOCK_UNAVAILABLE";
    readonly sent: boolean;
    constructor(message: string, details?: LockErrorDetails & {
        sent?: boolean | undefined;
    });
}

export type LockableResult = PromiseLike<unknown> | Observable<unknown> | AsyncGenerator<unknown, unknown, never>;

export type LossPolicy = 'throw' | 'throw-early' | 'ignore';

export type LossReason = 'expired' | 'revoked' | 'max-hold' | 'shutdown' | 'released' | 'rolled-back' | 'commit-unknown';

export declare class MemoryLockProvider implements LockProvider {
    #private;
    constructor(options?: MemoryLockProviderOptions);
    createBackend(context: BackendContext): MemoryBackend;
}

export interface MemoryLockProviderOptions {
    readonly store?: MemoryStore;
}

export declare class MemoryStore {
    #private;
    use(clock: Clock): void;
    get size(): number;
    tryTake(key: string, request: StoreRequest, onLost: () => void): StoredHold | undefined;
    wait(key: string, request: StoreRequest, onLost: () => void, serve: (hold: StoredHold | undefined) => void): {
        leave(): void;
    };
    renew(key: string, holder: string, lease: number): boolean;
    release(key: string, holder: string, keepFor: number): boolean;
    free(key: string): boolean;
    look(key: string): {
        readonly holds: readonly StoredHold[];
        readonly mode: LockMode;
        readonly waiters: number;
        readonly endsAt: number;
    } | undefined;
}

export type ProviderState = 'up' | 'down' | 'recovering';

export interface ProviderSwitch {
    readonly epoch: number;
    readonly from: string;
    readonly to: string;
    readonly reason: SwitchReason;
    readonly at: number;
}

export type ReleaseResult = 'released' | 'nested' | 'lost' | 'pending';

export declare function RunOnce(key: string, { atLeast, atMost, provider }: RunOnceOptions): SkippableLockDecorator;

export interface RunOnceOptions {
    atLeast: Duration;
    atMost?: Duration;
    provider?: string;
}

export interface SkippableLockDecorator<A extends readonly unknown[] = readonly []> {
    <M extends (...args: never[]) => PromiseLike<unknown>, P extends readonly [...A, ...unknown[]]>(target: Prototype, method: string | symbol, descriptor: TypedPropertyDescriptor<M> & Supplies<M, A> & {
        value?: (...args: P) => unknown;
        set?: (method: (...args: unknown[]) => Promise<undefined>) => void;
    }): void;
    <M extends (...args: never[]) => Observable<unknown> | AsyncGenerator<unknown, unknown, never>, P extends readonly [...A, ...unknown[]]>(target: Prototype, method: string | symbol, descriptor: TypedPropertyDescriptor<M> & Supplies<M, A> & {
        value?: (...args: P) => unknown;
    }): void;
}

export type SwitchReason = 'failure' | 'failback' | 'manual';

export type TaskOutcome = {
    readonly status: 'fulfilled';
    readonly value: unknown;
} | {
    readonly status: 'rejected';
    readonly reason: unknown;
};

export declare class VersionConflictError extends LockError {
    readonly code = "LOCK_VERSION_CONFLICT";
}

export interface WaitingLock {
    readonly key: string;
    readonly provider: string;
    readonly mode: LockMode;
    readonly method: string | null;
    readonly waited: number;
}

export declare function currentLock(key?: string): Lock;

export declare function duration(text: string): number;

export declare function getLockServiceToken(provider: string): string;

export declare function lockKey(literals: TemplateStringsArray, ...values: readonly KeyValue[]): string;

export declare function provideLockEventRelay(emitter: InjectionToken<LockEventTarget>): FactoryProvider;
