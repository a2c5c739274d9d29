// Plain JavaScript, because the scripts that use it run before anything is built. Its types stand in zookeeper-server.d.mts.
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { end, freePort, installed, launch, ready } from './server-process.mjs';

// Before it serves, and while it has no leader, it answers that it does not.
const GREETING = { hello: 'srvr', answer: /^Zookeeper version/ };
/**
 * Where Debian keeps its jars. That of ZooKeeper names those that it needs, in newer versions by the paths of this system: those of
 * another root precede it.
 */
const JARS = installed('usr/share/java');
const NEEDED =
  /^(zookeeper-jute|commons-cli|commons-io|jackson-\w+|jetty9-\w+|servlet-api|metrics-core|netty-[\w-]+|slf4j-api|snappy-java)\.jar$/;
const others = JARS === '/usr/share/java' ? [] : readdirSync(JARS).filter((name) => NEEDED.test(name));
// That of ZooKeeper does not name netty-codec.jar, which TLS needs.
const CLASSPATH = [...others, 'slf4j-simple.jar', 'zookeeper.jar', 'netty-codec.jar']
  .map((jar) => join(JARS, jar))
  .join(':');
// Small, since a test may run three of them. A server that lives for seconds never repays the second compiler.
const JVM = ['-Xmx256m', '-XX:+UseSerialGC', '-XX:-UsePerfData', '-XX:TieredStopAtLevel=1'];

/** Starts a ZooKeeper of its own on a free loopback port, in a temporary folder. */
export async function startZooKeeper(options) {
  for (let tries = 3; ; tries -= 1) {
    const server = await prepareZooKeeper(options);
    try {
      await server.restart();
      return server;
    } catch (error) {
      await server.stop();
      // The port was free when it was chosen; a connection of somebody else may have got it while Java started.
      if (tries === 1 || !error.message.includes('Address already in use')) throw error;
    }
  }
}

/** Prepares a ZooKeeper that is started by `restart`: an ensemble must start all its servers before the first one answers. */
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
    // Its page for administrators would take a port that is not ours.
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
    /** Sends a signal to the server, such as SIGSTOP and SIGCONT. */
    signal(name) {
      child.process.kill(name);
    },
    /** Asks it with one of its four-letter words. */
    ask: (word) => ask(port, word),
    /** Ends the server without a farewell. */
    kill: () => end(child.process, 'SIGKILL'),
    /** Starts it again, with the same port and folder. */
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
  socket.setTimeout(2_000, () => socket.destroy(new Error(`ZooKeeper on port ${port} does not answer "${word}".`)));
  socket.on('data', (text) => (answer += text));
  // It closes the connection after the answer.
  socket.end(word);
  await once(socket, 'close');
  return answer;
}

function lines(settings) {
  return Object.entries(settings)
    .map(([name, value]) => `${name}=${value}\n`)
    .join('');
}

/** What ZooKeeper keeps of a password. */
function digest(user, password) {
  return `${user}:${createHash('sha1').update(`${user}:${password}`).digest('base64')}`;
}
