import { LockManager } from '../../lib/core/lock-manager.js';
import type { BackendContext, LockBackend, LockProvider } from '../../lib/api/lock-provider.js';

/**
 * Presents a composite provider together with its members as the single provider the kit expects. Each backend belongs
 * to its own application, so its members are wrapped as in production.
 */
export class HostedComposite<M extends Readonly<Record<string, LockProvider>>> implements LockProvider {
  constructor(
    private readonly composite: LockProvider,
    /** The members. */
    readonly hosted: M,
  ) {}

  createBackend(context: BackendContext): LockBackend {
    const { name, namespace, clock, random, logger } = context;
    let methods: Omit<LockBackend, 'connect' | 'close'> | undefined;
    let failure: unknown;
    const main: LockProvider = {
      members: this.composite.members ?? [],
      createBackend: (inner) => {
        const emit: BackendContext['emit'] = (event) => {
          inner.emit(event);
          context.emit(event);
        };
        const backend = this.composite.createBackend({ ...inner, emit });
        methods = methodsOf(backend);
        const connect = () => backend.connect().catch((error: unknown) => void (failure = error));
        return { ...methods, connect, close: () => backend.close() };
      },
    };
    const application = new LockManager({
      ...{ namespace, clock, random, logger, default: name, shutdownGrace: 0, instance: context.instance.name },
      // The kit tests whether `connect` fails, and keeps using a backend whose server comes back.
      failFast: false,
      providers: { ...this.hosted, [name]: main },
    });
    if (!methods) throw new Error('The application created no backend.');
    const connect = async () => {
      await application.start();
      if (failure !== undefined) throw failure;
    };
    return { ...methods, connect, close: () => application.stop() };
  }
}

function methodsOf(backend: LockBackend): Omit<LockBackend, 'connect' | 'close'> {
  return {
    capabilities: backend.capabilities,
    acquire: backend.acquire.bind(backend),
    renew: backend.renew.bind(backend),
    release: backend.release.bind(backend),
    ...(backend.unansweredFor && { unansweredFor: backend.unansweredFor.bind(backend) }),
    ...(backend.heldBy && { heldBy: backend.heldBy.bind(backend) }),
    ...(backend.inspect && { inspect: backend.inspect.bind(backend) }),
    ...(backend.forceRelease && { forceRelease: backend.forceRelease.bind(backend) }),
    ...(backend.records && { records: backend.records }),
    ...(backend.diagnose && { diagnose: backend.diagnose.bind(backend) }),
  };
}
