"""Witness: a process that says why another one has ended, if that one had no time to say it itself.

python -I witness.py HOST:PORT    waits for its standard input to end; it runs alone, as Ray is slow to load
"""

import atexit
import socket
import subprocess
import sys

SECONDS = 5.0  # for a service to answer
DISMISSED = "all is well"


class Witness:
    """Watches this process, whose libraries end it when the head of a Ray cluster does not answer any more."""

    def __init__(self, address: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", __file__, address],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # it is not interrupted together with this process
        )
        atexit.register(self.dismiss)

    def dismiss(self) -> None:
        """Have it say nothing."""
        atexit.unregister(self.dismiss)
        if self._process.poll() is None:
            self._process.communicate(DISMISSED)


def main(address: str) -> None:
    """Wait for the other process to end; unless all is well, say whether the service there has ended, too."""
    if sys.stdin.read() == DISMISSED:
        return
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), SECONDS).close()
    except OSError:
        sys.stderr.write(
            f"error: the head of the Ray cluster at {address} has ended, and Ray has ended this command: "
            "start the head again, and then the same command\n"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
