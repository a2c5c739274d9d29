import type { EventEmitter } from 'node:events';
import type { QueryRunner } from 'typeorm';

/** Told why a transaction is over. */
type EndListener = (cause: Error) => void;

const ENDINGS = ['commitTransaction', 'rollbackTransaction'] as const;

// TypeORM tells nobody of a transaction of its own accord, so its methods are wrapped, once for each runner.
const listenersOf = new WeakMap<QueryRunner, Set<EndListener>>();

/**
 * Calls `onEnd` when the transaction that runs on `runner` has ended, or its connection has. Answers how to listen no more.
 *
 * The end of a transaction within it, a savepoint, is none.
 */
export async function watchTransaction(runner: QueryRunner, onEnd: EndListener): Promise<() => void> {
  const connection = (await runner.connect()) as EventEmitter;
  const listeners = listenersOf.get(runner) ?? wrapEndings(runner);
  const onLost = (cause?: unknown): void => {
    onEnd(cause instanceof Error ? cause : new Error('The connection of its transaction has ended.'));
  };
  listeners.add(onEnd);
  connection.on('end', onLost);
  connection.on('error', onLost);
  return () => {
    listeners.delete(onEnd);
    connection.removeListener('end', onLost);
    connection.removeListener('error', onLost);
  };
}

function wrapEndings(runner: QueryRunner): Set<EndListener> {
  const listeners = new Set<EndListener>();
  listenersOf.set(runner, listeners);
  for (const ending of ENDINGS) {
    const end = runner[ending].bind(runner);
    runner[ending] = async () => {
      try {
        await end();
      } finally {
        const isOver = !runner.isTransactionActive;
        for (const listener of isOver ? [...listeners] : []) listener(new Error('Its transaction has ended.'));
      }
    };
  }
  return listeners;
}
