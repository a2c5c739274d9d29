// Plain JavaScript like the other servers. The types are in rabbitmq-server.d.mts.
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { end, freePort, launch, ready } from './server-process.mjs';

// The original script, because the one on the PATH switches to the service's user.
const PROGRAM = '/usr/lib/rabbitmq/bin/rabbitmq-server';
// The AMQP 0-9-1 protocol header. The response is a method frame.
const GREETING = { hello: Buffer.from('AMQP\0\0\x09\x01', 'latin1'), answer: /^\x01/ };

// A start takes five seconds on an idle machine.
const READY_WITHIN = 60_000;

/** Whether RabbitMQ is installed. */
export const hasRabbitmq = existsSync(PROGRAM);

/** Starts a RabbitMQ server with the user `guest` and no plugins. */
export async function startRabbitmq() {
  const folder = await mkdtemp(join(tmpdir(), 'lock-rabbitmq-'));
  const [port, nodePort, namesPort] = [await freePort(), await freePort(), await freePort()];
  // Otherwise, Erlang starts its name daemon (epmd) automatically and leaves it running.
  const names = launch('epmd', ['-port', String(namesPort), '-address', '127.0.0.1']);
  const server = launch(PROGRAM, [], {
    env: {
      ...process.env,
      HOME: folder,
      ERL_EPMD_PORT: String(namesPort),
      RABBITMQ_NODENAME: 'lock@localhost',
      RABBITMQ_NODE_IP_ADDRESS: '127.0.0.1',
      RABBITMQ_NODE_PORT: String(port),
      RABBITMQ_DIST_PORT: String(nodePort),
      RABBITMQ_MNESIA_BASE: join(folder, 'data'),
      RABBITMQ_LOG_BASE: join(folder, 'log'),
      RABBITMQ_LOGS: '-',
      RABBITMQ_PID_FILE: join(folder, 'pid'),
      RABBITMQ_CONF_ENV_FILE: join(folder, 'none'),
      RABBITMQ_CONFIG_FILE: join(folder, 'none'),
      RABBITMQ_ENABLED_PLUGINS_FILE: join(folder, 'none'),
      // Makes the script exec the server instead of starting it as a child that we couldn't end.
      RABBITMQ_ALLOW_INPUT: 'yes',
      RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS: '-noinput +S 1:1 +sbwt none -kernel inet_dist_use_interface {127,0,0,1}',
    },
  });
  const stop = async () => {
    await end(server.process, 'SIGKILL');
    await end(names.process, 'SIGKILL');
    await rm(folder, { recursive: true, force: true });
  };
  try {
    await ready(server, port, GREETING, READY_WITHIN);
  } catch (error) {
    await stop();
    throw error;
  }
  return { url: `amqp://guest:guest@127.0.0.1:${port}`, stop };
}
