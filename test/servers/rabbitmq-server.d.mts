export interface RabbitmqServer {
  readonly url: string;
  stop(): Promise<void>;
}

/** Whether RabbitMQ is installed. */
export const hasRabbitmq: boolean;

/** Starts a RabbitMQ server with the user `guest` and no plugins. */
export function startRabbitmq(): Promise<RabbitmqServer>;
