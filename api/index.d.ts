// Public API. Written by "npm run api"; do not edit.

export interface AcquireRequest extends Holder {
    readonly lease: number;
    readonly renew: boolean;
    readonly minHold: number;
    readonly wait: number;
    readonly depth?: number;
    readonly options: Readonly<LockOptions>;
    readonly signal: AbortSignal;
}

export interface AcquireTrace extends LockEvent {
    error?: unknown;
    cancelled?: true;
}

export type Answer<T> = T | PromiseLike<T>;

export interface BusyContext {
    readonly keys: readonly string[];
    readonly provider: string;
    readonly method: string;
    readonly args: readonly unknown[];
    readonly error: LockTimeoutError;
}

export type ClassLockDefaults = LockDefaultOptions & Pick<LockOptions, 'provider'>;

export interface Clock {
    now(): number;
    uptime(): number;
    wallTime(): number;
    setTimer(callback: () => void, delay: number, keepAlive?: boolean): Timer;
    clearTimer(timer: Timer): void;
}

export declare class CombinedProvider implements CompositeProvider {
    #private;
    readonly memberNames: readonly string[];
    inspect?: (key: string) => Promise<LockInfo | null>;
    forceRelease?: (key: string) => Promise<boolean>;
    constructor(options: CombinedProviderOptions);
    get capabilities(): LockCapabilities;
    compose(members: ReadonlyMap<string, Member>): void;
    start(context: ProviderContext): Promise<void>;
    acquire(request: AcquireRequest): Promise<Grant | 'busy'>;
    renew({ holder }: Grant, lease: number): Promise<RenewOutcome>;
    release({ holder }: Holder, manner: ReleaseManner): Promise<ReleaseOutcome>;
    stop(): Promise<void>;
}

export interface CombinedProviderOptions {
    readonly engines: readonly string[];
    readonly quorum: 'all' | 'majority';
}

export interface CompositeProvider extends LockProvider {
    readonly memberNames: readonly string[];
    compose(members: ReadonlyMap<string, Member>): void;
}

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
    shutdownGrace?: Duration | undefined;
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

export type Duration = number | string;

export type EngineState = 'up' | 'down' | 'recovering';

export interface EngineSwitch {
    readonly epoch: number;
    readonly from: string;
    readonly to: string;
    readonly reason: SwitchReason;
    readonly at: number;
}

export declare class FailoverProvider implements CompositeProvider {
    #private;
    readonly memberNames: readonly string[];
    constructor(options: FailoverProviderOptions);
    compose(members: ReadonlyMap<string, Member>): void;
    get capabilities(): LockCapabilities;
    start(context: ProviderContext): Promise<void>;
    acquire(request: AcquireRequest): Answer<Grant | 'busy'>;
    renew(grant: Grant, lease: number): Promise<RenewOutcome>;
    release(holder: Holder, manner: ReleaseManner): Answer<ReleaseOutcome>;
    inspect(key: string): Promise<LockInfo | null>;
    forceRelease(key: string): Promise<boolean>;
    check(): Promise<readonly Finding[]>;
    stop(): Promise<void>;
    get state(): FailoverState;
    switchTo(engine: string): Promise<void>;
}

export interface FailoverProviderOptions {
    readonly engines: readonly string[];
    readonly mode?: 'strict' | 'available';
    readonly record?: string;
    readonly window?: Duration;
    readonly lease?: Duration;
    readonly failures?: number;
    readonly probeEvery?: Duration;
    readonly probeTimeout?: Duration;
    readonly stableFor?: Duration;
    readonly minStay?: Duration;
}

export interface FailoverState {
    readonly active: string | null;
    readonly epoch: number;
    readonly engines: Readonly<Record<string, EngineState>>;
    readonly history: readonly EngineSwitch[];
}

export interface Finding {
    readonly severity: 'warning' | 'error';
    readonly message: string;
}

export interface Grant extends Holder {
    readonly fencingToken: bigint | null;
    readonly validUntil: number;
    readonly lease: number;
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
    result?: 'released' | 'unconfirmed';
    error?: LockLostError;
}

export interface Holder {
    readonly key: string;
    readonly holder: string;
    readonly mode: LockMode;
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
    held(): HeldLock[];
    waiting(): WaitingLock[];
}

export interface LockCapabilities {
    readonly shared: boolean;
    readonly fair: boolean;
    readonly fencing: boolean;
    readonly wideTokens?: boolean;
    readonly lease: 'per-lock' | 'session';
    readonly maxLease?: number;
    readonly minHold: boolean;
    readonly options?: readonly string[];
    readonly forceRelease: boolean;
    readonly queue: 'native' | 'engine';
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

export type LockDefaults = Pick<LockOptions, 'wait' | 'lease' | 'maxHold' | 'reentrant' | 'onLost'>;

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
    unrenewed: LockEvent & {
        readonly remaining: number;
    };
    lost: LockEvent & {
        readonly held: number;
        readonly reason: LossReason;
    };
    timeout: LockEvent & {
        readonly waited: number;
    };
    skipped: LockEvent;
    unconfirmed: LockEvent;
    unavailable: {
        readonly provider: string;
        readonly cause: unknown;
    };
    switched: {
        readonly provider: string;
        readonly engine: string;
        readonly epoch: number;
        readonly reason: 'failure' | 'return' | 'manual';
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
    readonly state: 'held' | 'parked';
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
    acquirePlanned(plan: LockPlan, key: LockKey, signal?: AbortSignal): Answer<GrantedLock>;
    plan(options: LockOptions, origin?: LockOrigin): LockPlan;
    current(key?: string): Lock | undefined;
    detached<T>(task: () => T): T;
    inspect(key: string, provider?: string): Promise<LockInfo | null>;
    forceRelease(key: string, provider?: string): Promise<boolean>;
    held(): HeldLock[];
    waiting(): WaitingLock[];
    stop(): Promise<void>;
}

export interface LockManagerOptions {
    readonly providers: Readonly<Record<string, LockProvider>>;
    readonly default?: string | undefined;
    readonly namespace?: string | undefined;
    readonly defaults?: LockDefaults | undefined;
    readonly shutdownGrace?: Duration | undefined;
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
    readonly capabilities: LockCapabilities;
    start(context: ProviderContext): Promise<void>;
    acquire(request: AcquireRequest): Answer<Grant | 'busy'>;
    renew(grant: Grant, lease: number): Promise<RenewOutcome>;
    release(holder: Holder, manner: ReleaseManner): Answer<ReleaseOutcome>;
    inspect?(key: string): Promise<LockInfo | null>;
    forceRelease?(key: string): Promise<boolean>;
    check?(): Promise<readonly Finding[]>;
    readonly records?: Records;
    stop(): Promise<void>;
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

export declare class LockTable {
    #private;
    use(clock: Clock): void;
    get size(): number;
    tryTake(key: string, request: TableRequest, onLost: () => void): TableHold | undefined;
    wait(key: string, request: TableRequest, onLost: () => void, serve: (hold: TableHold | undefined) => void): {
        leave(): void;
    };
    prolong(key: string, holder: string, lease: number): TableHold | undefined;
    release(key: string, holder: string, keepFor: number): boolean;
    free(key: string): boolean;
    look(key: string): {
        readonly holds: readonly TableHold[];
        readonly mode: LockMode;
        readonly waiters: number;
        readonly endsAt: number;
    } | undefined;
}

export declare class LockTimeoutError extends LockError {
    readonly code = "LOCK_TIMEOUT";
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

export interface Member extends Pick<LockProvider, 'capabilities' | 'acquire' | 'renew' | 'release' | 'inspect' | 'forceRelease' | 'records'> {
    observe(listener: (event: ProviderEvent) => void): void;
}

export declare class MemoryLockProvider implements LockProvider {
    #private;
    readonly capabilities: LockCapabilities;
    constructor(options?: MemoryLockProviderOptions);
    start(context: ProviderContext): Promise<void>;
    acquire(request: AcquireRequest): Answer<Grant | 'busy'>;
    renew({ key, holder }: Grant, lease: number): Promise<RenewOutcome>;
    release(holder: Holder, manner: ReleaseManner): ReleaseOutcome;
    inspect(key: string): Promise<LockInfo | null>;
    forceRelease(key: string): Promise<boolean>;
    stop(): Promise<void>;
}

export interface MemoryLockProviderOptions {
    readonly table?: LockTable;
}

export interface ProviderContext {
    readonly name: string;
    readonly namespace: string;
    readonly clock: Clock;
    readonly random: Random;
    readonly logger: LockLogger;
    emit(event: ProviderEvent): void;
}

export type ProviderEvent = {
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
    readonly type: 'switched';
    readonly engine: string;
    readonly epoch: number;
    readonly reason: 'failure' | 'return' | 'manual';
};

export interface Random {
    id(): string;
    fraction(): number;
}

export interface Records {
    compareAndSet(name: string, expected: string | null, next: string): Promise<string | null>;
}

export interface ReleaseManner {
    readonly keepFor: number;
    readonly failed: boolean;
}

export type ReleaseOutcome = 'released' | 'lost' | 'unknown' | Uncommitted;

export type ReleaseResult = 'released' | 'nested' | 'lost' | 'unconfirmed';

export type RenewOutcome = {
    readonly validUntil: number;
} | 'lost' | 'unknown';

export declare function RunOnce(key: string, { atLeast, atMost, provider }?: RunOnceOptions): SkippableLockDecorator;

export interface RunOnceOptions {
    atLeast?: Duration;
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

export type SwitchReason = 'failure' | 'return' | 'manual';

export type TaskOutcome = {
    readonly status: 'fulfilled';
    readonly value: unknown;
} | {
    readonly status: 'rejected';
    readonly reason: unknown;
};

export type Timer = object;

export interface Uncommitted {
    readonly written: 'rolled-back' | 'unknown';
    readonly cause: unknown;
}

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

export declare function getLockServiceToken(provider: string): string;

export declare function lockKey(literals: TemplateStringsArray, ...values: readonly KeyValue[]): string;

export declare function provideLockEventRelay(emitter: InjectionToken<LockEventTarget>): FactoryProvider;

export declare const systemClock: Clock;

export declare function validUntil(sentAt: number, lease: number): number;
