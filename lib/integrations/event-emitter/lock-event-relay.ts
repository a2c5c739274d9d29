import type { FactoryProvider, InjectionToken } from '@nestjs/common';
import { eventChannels } from '../../core/events/channels.js';
import type { LockEventName } from '../../api/lock-events.js';
import { LockService } from '../../nest/service/lock.service.js';

/**
 * A provider that re-emits every event of the application's locks through one of the application's emitters, as
 * `lock.acquired`, `lock.lost`, and so on, for `@OnEvent('lock.lost')`.
 *
 * @param emitter the injection token of an `EventEmitter2` from `@nestjs/event-emitter`, or of any object with the same
 * `emit`
 * @example
 * ```ts
 * @Module({
 *   imports: [EventEmitterModule.forRoot(), DistributedLockModule.forRoot()],
 *   providers: [provideLockEventRelay(EventEmitter2)],
 * })
 * ```
 */
export function provideLockEventRelay(
  emitter: InjectionToken<{ emit(name: string, event: unknown): unknown }>,
): FactoryProvider {
  return {
    // Unique for each call, because an application may relay to several emitters.
    provide: Symbol('lock event relay'),
    inject: [LockService, emitter],
    useFactory: ({ events }: LockService, target: { emit(name: string, event: unknown): unknown }) => {
      for (const name of Object.keys(eventChannels) as LockEventName[]) {
        events.on(name, (event) => target.emit(`lock.${name}`, event));
      }
      return target;
    },
  };
}
