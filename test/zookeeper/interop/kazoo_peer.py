"""Acquires and releases kazoo locks on command, one line each:

  <ticket> acquire <kind> <path> <milliseconds>   reply:   <ticket> held | busy
  <ticket> release <kind> <path>                  reply:   <ticket> released
  anything that fails                             reply:   <ticket> error <what>

KINDS lists the kinds. A ticket is one owner, with its own thread, which runs its commands one after another.
"""
import queue
import sys
import threading

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout
from kazoo.recipe.lock import Lock, ReadLock, WriteLock
from kazoo.retry import ForceRetryError


class CuratorMutex(Lock):
    """The lock of InterProcessMutex."""

    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES = ["-lock-"]


class CuratorWriteLock(Lock):
    """The write lock of InterProcessReadWriteLock."""

    _NODE_NAME = "__WRIT__"
    _EXCLUDE_NAMES = ["__WRIT__", "__READ__"]


class CuratorReadLock(Lock):
    """The read lock of InterProcessReadWriteLock."""

    _NODE_NAME = "__READ__"
    _EXCLUDE_NAMES = ["__WRIT__"]

    def _get_predecessor(self, node):
        # kazoo 2.8 also waits for later writers, which wait for this reader: python-zk/kazoo, issue 649.
        children = self.client.get_children(self.path)
        if node not in children:
            raise ForceRetryError()
        writers = [name for name in children if "__WRIT__" in name and name[-10:] < node[-10:]]
        return max(writers, key=lambda name: name[-10:], default=None)


KINDS = {
    "default": lambda client, path: Lock(client, path),
    "extra": lambda client, path: Lock(client, path, extra_lock_patterns=["-lock-"]),
    "mutex": CuratorMutex,
    "write": CuratorWriteLock,
    "read": CuratorReadLock,
    "own-write": lambda client, path: WriteLock(client, path, extra_lock_patterns=["__WRIT__", "__READ__"]),
    "own-read": lambda client, path: ReadLock(client, path, extra_lock_patterns=["__WRIT__"]),
}

writing = threading.Lock()


def answer(line):
    with writing:
        print(line, flush=True)


class Owner(threading.Thread):
    def __init__(self, client, ticket):
        super().__init__(daemon=True)
        self.client = client
        self.ticket = ticket
        self.commands = queue.Queue()
        self.locks = {}
        self.start()

    def run(self):
        while True:
            verb, kind, path, *rest = self.commands.get()
            try:
                answer(f"{self.ticket} {self.do(verb, kind, path, *rest)}")
            except Exception as failure:
                answer(f"{self.ticket} error {failure!r}")

    def do(self, verb, kind, path, milliseconds="0"):
        if verb == "release":
            self.locks.pop((kind, path)).release()
            return "released"
        lock = self.locks[kind, path] = KINDS[kind](self.client, path)
        wait = int(milliseconds) / 1000
        try:
            held = lock.acquire(timeout=wait) if wait > 0 else lock.acquire(blocking=False)
        except LockTimeout:
            held = False
        return "held" if held else "busy"


client = KazooClient(hosts=sys.argv[1], timeout=40)
client.start()
answer("ready")
owners = {}
for line in sys.stdin:
    name, *command = line.split()
    if name not in owners:
        owners[name] = Owner(client, name)
    owners[name].commands.put(command)
client.stop()
