import { NotSent } from './command-connection.js';
import { Dispatcher } from './dispatcher.js';
import type { Script } from './lua/lock-script.js';
import type { Operation } from './operation.js';
import type { ServerLink } from './server-link.js';
import type { ServersContext, ServersListener } from './servers.js';

/** What becomes of a call that a server refused before it ran: resolves when it may be sent again; nothing when it may not. */
export type Redirect = (error: Error, sentAt: number) => Promise<void> | undefined;

/**
 * The way of all operations that share a counter, and with it a script call, to the server that keeps it at the time.
 *
 * What a server answers after another one has taken its place is not believed: it may have been demoted, and forget what it has
 * just granted. Such an outcome is unknown.
 */
export class Lane {
  link: ServerLink | undefined;
  readonly #dispatcher: Dispatcher;
  readonly #confirmations: Dispatcher | undefined;

  constructor(
    counter: string,
    script: Script,
    { process, clock, waitReplicas }: ServersContext,
    { onNotice }: ServersListener,
    redirect?: Redirect,
  ) {
    const dispatcher = (pick: (link: ServerLink) => Pick<ServerLink['commands'], 'send'> | undefined) =>
      new Dispatcher(
        process,
        counter,
        script,
        clock,
        {
          send: (command, args, onReply, onFailure) => {
            const link = this.link;
            const connection = link && pick(link);
            if (connection === undefined) {
              onFailure(new NotSent('No server is known to keep this lock.'));
              return;
            }
            connection.send(
              command,
              args,
              (reply) => {
                if (this.link === link) onReply(reply);
                else onFailure(new Error('The lock was moved to another server meanwhile.'));
              },
              onFailure,
            );
          },
          ...(redirect && { redirect }),
        },
        onNotice,
      );
    this.#dispatcher = dispatcher((link) => link.commands);
    if (waitReplicas > 0) this.#confirmations = dispatcher((link) => link.confirmations);
  }

  add(operation: Operation): void {
    this.#dispatcher.add(operation);
  }

  confirm(operation: Operation, lease: number): void {
    if (this.#confirmations === undefined) {
      this.#dispatcher.add(operation);
      return;
    }
    this.link?.confirmations?.limit(lease);
    this.#confirmations.add(operation);
  }
}
