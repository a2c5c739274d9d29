// Plain JavaScript, because scripts use it before anything is built. The types are in zookeeper-server.d.mts.
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { end, freePort, installed, launch, ready } from './server-process.mjs';

// Before it serves clients, and while there is no leader, it responds with an error.
const GREETING = { hello: 'srvr', answer: /^Zookeeper version/ };
/**
 * Debian's folder of jars. ZooKeeper's jar lists its dependencies, in newer versions by absolute path, so another
 * root's jars must come first.
 */
const JARS = installed('usr/share/java');
const NEEDED =
  /^(zookeeper-jute|commons-cli|commons-io|jackson-\w+|jetty9-\w+|servlet-api|metrics-core|netty-[\w-]+|slf4j-api|snappy-java)\.jar$/;
const others = JARS === '/usr/share/java' ? [] : readdirSync(JARS).filter((name) => NEEDED.test(name));
// ZooKeeper's jar doesn't list netty-codec.jar, which TLS needs.
const CLASSPATH = [...others, 'slf4j-simple.jar', 'zookeeper.jar', 'netty-codec.jar']
  .map((jar) => join(JARS, jar))
  .join(':');
// Small, because a test may run three servers. A short-lived server never benefits from the second compiler.
const JVM = ['-Xmx256m', '-XX:+UseSerialGC', '-XX:-UsePerfData', '-XX:TieredStopAtLevel=1'];

/** Starts ZooKeeper on a free loopback port in a temporary folder. */
export async function startZooKeeper(options) {
  for (let tries = 3; ; tries -= 1) {
    const server = await prepareZooKeeper(options);
    try {
      await server.restart();
      return server;
    } catch (error) {
      await server.stop();
      // The port was free when it was chosen, but another connection may have taken it while Java started.
      if (tries === 1 || !error.message.includes('Address already in use')) throw error;
    }
  }
}

/**
 * Prepares a ZooKeeper server that `restart` starts. An ensemble must start all servers before the first one responds.
 */
export async function prepareZooKeeper({
  tickTime = 200,
  forceSync = false,
  superPassword,
  config = {},
  properties = {},
} = {}) {
  const folder = await mkdtemp(join(tmpdir(), 'lock-zookeeper-'));
  const port = await freePort();
  const settings = {
    ...{ tickTime, dataDir: join(folder, 'data'), clientPort: port, clientPortAddress: '127.0.0.1' },
    ...{ minSessionTimeout: 2 * tickTime, maxSessionTimeout: 60_000, maxClientCnxns: 0 },
    // The admin server would open a port that may be taken.
    ...{ 'admin.enableServer': false, '4lw.commands.whitelist': '*' },
    ...config,
  };
  await mkdir(settings.dataDir);
  await writeFile(join(folder, 'zoo.cfg'), lines(settings));
  const system = {
    ...{ 'org.slf4j.simpleLogger.defaultLogLevel': 'warn', 'zookeeper.forceSync': forceSync ? 'yes' : 'no' },
    ...(superPassword && { 'zookeeper.DigestAuthenticationProvider.superDigest': digest('super', superPassword) }),
    ...properties,
  };
  const args = [
    ...JVM,
    ...Object.entries(system).map(([name, value]) => `-D${name}=${value}`),
    ...['-cp', CLASSPATH, 'org.apache.zookeeper.server.quorum.QuorumPeerMain', join(folder, 'zoo.cfg')],
  ];
  let child;
  return {
    port,
    folder,
    connectString: `127.0.0.1:${port}`,
    get pid() {
      return child.process.pid;
    },
    /** Sends a signal to the server, such as SIGSTOP or SIGCONT. */
    signal(name) {
      child.process.kill(name);
    },
    /** Sends a four-letter word and returns the response. */
    ask: (word) => ask(port, word),
    /** Kills the server. */
    kill: () => end(child.process, 'SIGKILL'),
    /** Restarts the server with the same port and folder. */
    async restart() {
      child = launch('java', args);
      await ready(child, port, GREETING);
    },
    async stop() {
      if (child) await end(child.process, 'SIGKILL');
      await rm(folder, { recursive: true, force: true });
    },
  };
}

async function ask(port, word) {
  const socket = connect(port, '127.0.0.1');
  let answer = '';
  socket.setTimeout(2_000, () => socket.destroy(new Error(`ZooKeeper on port ${port} does not respond to "${word}".`)));
  socket.on('data', (text) => (answer += text));
  // The server closes the connection after its response.
  socket.end(word);
  await once(socket, 'close');
  return answer;
}

function lines(settings) {
  return Object.entries(settings)
    .map(([name, value]) => `${name}=${value}\n`)
    .join('');
}

/** Returns the form in which ZooKeeper stores a password. */
function digest(user, password) {
  return `${user}:${createHash('sha1').update(`${user}:${password}`).digest('base64')}`;
}
