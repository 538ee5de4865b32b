"""The `kbq` command: runs `cli.py`, which a checkout has next to the package.

Exit status: 0 done, 1 the input is at fault, 2 wrong usage.
"""

import errno
import importlib.util
import io
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import typer

from kbq.commands.options import explained
from kbq.commands.terminal import note, print_error
from kbq.errors import KbqError, first_line, is_out_of_memory
from kbq.storage.paths import resource_path
from kbq.text.visible import visible

UsageError: Any = typer.BadParameter.__base__
# Errors of writing that name no file.
OF_OUTPUT = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE, errno.EBADF}


def main() -> None:
    """Run the command line; every error of kbq is one message and exit status 1, or 2 for wrong
    usage.
    """
    # Waiting threads that spin make a busy machine several times slower; this must be said before
    # torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy multiplies only small matrices here
    _open_standard_files()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # JSON is UTF-8, and no name ends in a traceback
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    status = _status_of(lambda **how: _cli().app(**how))
    sys.exit(_output_status() or status)


def _cli() -> Any:
    spec = importlib.util.spec_from_file_location("kbq.cli", resource_path("cli.py"))
    if spec is None or spec.loader is None:
        raise ImportError(f"{resource_path('cli.py')} is missing: install kbq again")
    cli = importlib.util.module_from_spec(spec)
    sys.modules["kbq.cli"] = cli
    spec.loader.exec_module(cli)
    return cli


def _open_standard_files() -> None:
    """Open the first three descriptors if they are closed, or a file of kbq would get one, and
    whatever is printed.

    Writing to a standard output that was closed fails, as it does on a full disk.
    """
    while (descriptor := os.open(os.devnull, os.O_RDONLY)) < 3:
        pass
    os.close(descriptor)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)


def _status_of(app: Callable[..., int | None]) -> int:
    """Run the app; say what ended it, and return the exit status."""
    lacking = ""  # why memory was short
    try:
        status = app(standalone_mode=False) or 0
    except UsageError as error:
        if type(error).__name__ != "NoArgsIsHelpError":  # this error's message is the whole help
            error.message = visible(explained(error))
        error.show()
        return 2
    except KbqError as error:
        print_error(error)
        return 2 if error.is_usage else 1
    except OSError as error:  # files that kbq reads and writes have errors of their own
        if error.filename is None and error.errno in OF_OUTPUT:
            _give_up_output(error)
        else:
            print_error(_unusable(error))
        return 1
    except (MemoryError, RuntimeError, ImportError) as error:
        problem = first_line(error)
        if is_out_of_memory(error):
            lacking = problem
        elif type(error).__name__ == "AcceleratorError" or problem.startswith("CUDA error"):
            advice = "try again, or use --device cpu"
            print_error(KbqError(f"the GPU cannot go on ({problem}): {advice}"))
        else:
            raise
        status = 1

    # Said when the frames of the error hold no memory any more, and without colours, which take
    # some.
    if lacking:
        advice = "end other programs, or try --device cpu or fewer --workers"
        sys.stderr.write(f"error: too little memory ({lacking}): {advice}\n")
    if status == 130:  # what Typer makes of Ctrl-C
        note("stopped; what is on the disk stays, and commands that can resume go on from there")

    return status


def _unusable(error: OSError) -> KbqError:
    """Return the message that a file, or the system, cannot be used."""
    from kbq.storage.writing import ADVICE  # imported on demand: the help does not need it

    advice = ADVICE.get(error.errno or 0, "repair it and try again")
    name = error.filename or "the system"
    return KbqError(f"{name} cannot be used ({error.strerror or error}): {advice}")


def _output_status() -> int:
    """Flush standard output; return 1, and say so, if it cannot be written."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        _give_up_output(error)
        return 1
    return 0


def _give_up_output(error: OSError) -> None:
    """Say why standard output cannot be written, unless its reader has ended, like `head`."""
    if error.errno == errno.EBADF:
        print_error(KbqError("standard output is closed, so the output is lost: send it to a file"))
    elif error.errno != errno.EPIPE:
        print_error(
            KbqError(
                f"standard output cannot be written ({error.strerror}): free disk space, or send "
                "it elsewhere"
            )
        )

    with suppress(OSError):  # it is not a file
        # Python writes the rest at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
