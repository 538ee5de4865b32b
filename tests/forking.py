"""A process that has imported what kbq needs, and forks for each `kbq` of an example: importing
takes seconds.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAM = """#!{python} -ES
import json, os, signal, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    socket.send_fds(server, [json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()], [0, 1, 2])
    command = int(server.recv(9))
    signal.signal(signal.SIGTERM, lambda *_: os.kill(command, signal.SIGTERM))
    sys.exit(int(server.recv(9)))
"""


@contextmanager
def forking(folder: Path) -> Iterator[None]:
    """While such a process runs, `kbq` in this folder is a program that asks it for a fork."""
    address, program = folder / "socket", folder / "kbq"
    program.write_text(PROGRAM.format(python=sys.executable, address=str(address)))
    program.chmod(0o755)
    asked = [sys.executable, __file__, str(address)]
    with subprocess.Popen(
        asked, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:  # pipes, as forks have
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        try:
            yield
        finally:
            process.terminate()


def fork_for(listening: socket.socket) -> socket.socket:
    """Wait for programs, and return, in a fork, the connection to one."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        connection, _ = listening.accept()
        if not os.fork():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return connection
        connection.close()


def become_command(connection: socket.socket) -> None:
    """Return in a process with the arguments, files, folder and environment of the program; report
    how that ends.
    """
    asked, files, *_ = socket.recv_fds(connection, 2**20, 3)
    if command := os.fork():
        connection.send(f"{command:9}".encode())
        _, status = os.waitpid(command, 0)
        connection.send(f"{os.waitstatus_to_exitcode(status):9}".encode())
        os._exit(0)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.argv, folder, environment = json.loads(asked)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)


def serve(address: str) -> None:
    from kbq.__main__ import main
    from kbq.tuning import finetune  # and with it nearly all that a command imports

    # Else tuning takes as long for four triples as for hundreds.
    finetune.ENOUGH, finetune.WATCHED = (
        1,
        10,
    )
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        connection = fork_for(listening)
    with connection:
        become_command(connection)
    main()


if __name__ == "__main__":
    serve(sys.argv[1])
