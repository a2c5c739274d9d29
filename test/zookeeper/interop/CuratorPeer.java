import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryOneTime;

/**
 * Acquires and releases Curator locks on command, one line each:
 *
 *   <ticket> acquire <mutex|write|read> <path> <milliseconds>   reply:   <ticket> held | busy
 *   <ticket> release <mutex|write|read> <path>                  reply:   <ticket> released
 *   anything that fails                                         reply:   <ticket> error <what>
 *
 * A ticket is one owner: Curator's locks belong to threads, so each ticket has its own thread, which runs its commands
 * one after another.
 */
public class CuratorPeer {
  public static void main(String[] args) throws Exception {
    try (CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], 40_000, 20_000, new RetryOneTime(100))) {
      client.start();
      client.blockUntilConnected();
      answer("ready");
      Map<String, Owner> owners = new ConcurrentHashMap<>();
      BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
      for (String line = commands.readLine(); line != null; line = commands.readLine()) {
        String[] words = line.split(" ");
        owners.computeIfAbsent(words[0], ticket -> new Owner(client, ticket)).run(words);
      }
    }
    System.exit(0);
  }

  private static synchronized void answer(String line) {
    System.out.println(line);
    System.out.flush();
  }

  private static class Owner {
    private final ExecutorService thread = Executors.newSingleThreadExecutor();
    private final Map<String, InterProcessMutex> mutexes = new ConcurrentHashMap<>();
    private final Map<String, InterProcessReadWriteLock> pairs = new ConcurrentHashMap<>();
    private final CuratorFramework client;
    private final String ticket;

    Owner(CuratorFramework client, String ticket) {
      this.client = client;
      this.ticket = ticket;
    }

    void run(String[] words) {
      thread.execute(() -> {
        try {
          InterProcessLock lock = lock(words[2], words[3]);
          if (words[1].equals("release")) {
            lock.release();
            answer(ticket + " released");
          } else {
            boolean held = lock.acquire(Long.parseLong(words[4]), TimeUnit.MILLISECONDS);
            answer(ticket + (held ? " held" : " busy"));
          }
        } catch (Exception failure) {
          answer(ticket + " error " + failure);
        }
      });
    }

    private InterProcessLock lock(String kind, String path) {
      if (kind.equals("mutex")) return mutexes.computeIfAbsent(path, each -> new InterProcessMutex(client, each));
      InterProcessReadWriteLock pair = pairs.computeIfAbsent(path, each -> new InterProcessReadWriteLock(client, each));
      return kind.equals("write") ? pair.writeLock() : pair.readLock();
    }
  }
}
