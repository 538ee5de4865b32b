"""Limits: call parsers of strangers' files in a child process that can do no harm.

A file that takes too much, or crashes its parser, costs a child, and a new one takes the next file.
"""

import math
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Literal, NoReturn, ParamSpec, Self, TypeVar

from kbq.errors import KbqError, first_line

try:
    import resource
except ImportError:  # Windows, where memory has no limit, and the clock limits time
    resource = None  # type: ignore[assignment]

Given = ParamSpec("Given")
Returned = TypeVar("Returned")

# Bytes.
SECONDS = 30.0
MEMORY = 2**30
# Seconds on the clock for each second of computing, as other processes may use the same cores.
PATIENCE = 10
OUT_OF_MEMORY = 77  # exit status of a child
ROOT = str(Path(__file__).parents[2])
# Unlike multiprocessing, this runs neither the caller's script nor anything from the current folder
# (-P).
CHILD = "import sys; sys.path[:] = sys.argv[1:]; from kbq.storage.limited import serve; serve()"
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}


class LimitExceeded(KbqError):  # noqa: N818
    """A call that exceeded its time or memory, or ended its process."""

    def __init__(self, message: str, limit: Literal["seconds", "memory", "process"]) -> None:
        super().__init__(message)
        self.limit = limit


class LimitedProcess:
    """A child process that calls functions, one at a time. It starts with the first call and ends
    with `close`.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(
        self,
        function: Callable[..., Returned],
        *args: Any,
        seconds: float = SECONDS,
        memory: int = MEMORY,
    ) -> Returned:
        """Call an importable function in the child, and return its result or raise its error, which
        are pickled.

        Args:
            seconds: of computing or, where the system has no such limit, on the clock.
            memory: bytes that the child may allocate, on Linux.

        Raises LimitExceeded if the call exceeds a limit or ends its process, KbqError if no process
        can be started.
        """
        with self._lock:
            if self._process is not None:
                try:
                    return self._asked((function, args, seconds, memory))
                except LimitExceeded as problem:
                    if problem.limit == "seconds":
                        raise
            # Else earlier calls may have left little memory, or somebody has killed an idle child:
            # try a fresh one.
            return self._asked((function, args, seconds, memory))

    def close(self) -> None:
        if self._process is not None:
            _kill(self._process)
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                with suppress(OSError):  # what was not sent to it
                    pipe.close()  # type: ignore[union-attr]
            self._process = None

    def _asked(
        self, request: tuple[Callable[..., Returned], tuple[Any, ...], float, int]
    ) -> Returned:
        """Send a request to the process, and return its answer or raise."""
        *_, seconds, memory = request
        process = self._process = self._process or _started()
        late = threading.Event()

        def end() -> None:
            late.set()
            _kill(process)

        longest = seconds
        if resource:
            longest *= PATIENCE
        clock = threading.Timer(longest, end)
        clock.start()
        try:
            pickle.dump((*request, resource is not None), process.stdin)  # type: ignore[arg-type]
            process.stdin.flush()  # type: ignore[union-attr]
            returned: Returned
            returned, error = pickle.load(process.stdout)  # type: ignore[arg-type]
        except (OSError, EOFError, pickle.UnpicklingError):  # it has ended
            with suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
            status = process.poll()
            self.close()
            _refuse(status, late.is_set(), seconds, memory)
        except BaseException:
            self.close()
            raise
        finally:
            clock.cancel()
            clock.join()

        if error is not None:
            raise error
        return returned


def _started() -> "subprocess.Popen[bytes]":
    """Start a process that runs functions."""
    path = dict.fromkeys([entry or ROOT for entry in sys.path] + [ROOT])
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", CHILD, *path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | ENVIRONMENT,
            start_new_session=True,  # makes the programs that it starts end with it
        )
    except OSError as error:
        raise KbqError(
            f"no process can be started to read files in ({error.strerror}): end other programs"
        ) from None


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def _refuse(status: int | None, is_late: bool, seconds: float, memory: int) -> NoReturn:
    """Raise LimitExceeded for a child that ended with this status, or by the clock."""
    if is_late or status == -getattr(signal, "SIGXCPU", 0):
        raise LimitExceeded(f"it takes more than {seconds:g} seconds to read", "seconds")
    if status == OUT_OF_MEMORY:
        raise LimitExceeded(
            f"it takes more than {memory / 2**20:,.0f} MB of memory to read", "memory"
        )
    if status is None or status >= 0:
        how = f"status {status}"
    else:
        how = signal.strsignal(-status) or f"signal {-status}"
    raise LimitExceeded(
        f"the process that read it ended ({how}): save it again with another program", "process"
    )


def serve() -> None:
    """Child process: run functions received on stdin and write their results to stdout."""
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "r+b", buffering=0) as null:  # parsers may print  # noqa: PTH123
        os.dup2(null.fileno(), 0)
        os.dup2(null.fileno(), 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    sys.addaudithook(_refuse_network)
    with suppress(EOFError):  # the parent has ended
        while True:
            _answer(requests, answers)


def _answer(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Run one function within its limits, and write what it returns."""
    returned = None
    problem = None
    try:
        function, args, seconds, memory, has_limits = pickle.load(requests)
        if has_limits:
            _limit("RLIMIT_CPU", math.ceil(time.process_time() + seconds))
            room = "RLIMIT_AS"
            if sys.platform == "linux":
                room = "RLIMIT_DATA"
            _limit(room, memory)
            _limit("RLIMIT_CORE", 0)
        returned = function(*args)
    except EOFError:
        raise
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None:  # errors may have replaced that of memory
            if isinstance(cause, MemoryError):
                os._exit(OUT_OF_MEMORY)
            cause = cause.__context__
        try:
            pickle.loads(pickle.dumps(error))
            problem = error
        except Exception:
            problem = RuntimeError(f"{type(error).__name__}: {first_line(error)}")

    try:
        pickle.dump((returned, problem), answers)
        answers.flush()
    except MemoryError:
        os._exit(OUT_OF_MEMORY)

    _limit("RLIMIT_CPU", None)


def _limit(name: str, most: int | None) -> None:
    """Set or lift a limit of this process, as far as the system allows."""
    with suppress(AttributeError, ValueError, OSError):
        kind = getattr(resource, name)
        _, hardest = resource.getrlimit(kind)
        limits = [limit for limit in (most, hardest) if limit not in (None, resource.RLIM_INFINITY)]
        resource.setrlimit(kind, (min(limits, default=resource.RLIM_INFINITY), hardest))


def _refuse_network(event: str, _: object) -> None:
    if event in ("socket.__new__", "socket.getaddrinfo", "socket.gethostbyname"):
        raise PermissionError("a process that reads files has no network")
