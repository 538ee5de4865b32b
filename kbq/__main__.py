"""The `kbq` command: runs `cli.py`, which lies beside the package in a checkout and inside it once installed.

Exit status: 0 done, 1 the input is at fault, 2 wrong usage.
"""

import importlib.util
import io
import os
import sys
from typing import Any

import typer

from kbq.commands.application import new_spelling
from kbq.commands.terminal import note, print_error
from kbq.errors import KbqError, first_line
from kbq.system.paths import own
from kbq.system.visible import visible

UsageError: Any = typer.BadParameter.__base__


def main() -> None:
    """Run the command line; every error of kbq is one message and exit status 1, or 2 for wrong usage."""
    # Waiting threads that spin make a busy machine several times slower; this must be said before torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy multiplies only small matrices here
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # JSON is UTF-8, and no name ends in a traceback
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    spec = importlib.util.spec_from_file_location("kbq.cli", own("cli.py"))
    if spec is None or spec.loader is None:
        raise ImportError(f"{own('cli.py')} is missing: install kbq again")
    cli = importlib.util.module_from_spec(spec)
    sys.modules["kbq.cli"] = cli
    spec.loader.exec_module(cli)
    try:
        status = cli.app(standalone_mode=False)
    except UsageError as error:
        hint = new_spelling(sys.argv[1:], error.message)
        error.message = visible(f"{error.message.rstrip('.')}: {hint}" if hint else error.message)
        error.show()
        sys.exit(2)
    except KbqError as error:
        print_error(error)
        sys.exit(2 if error.is_usage else 1)
    except OSError as error:  # what reads and writes files says it itself: this is of standard output, say
        print_error(KbqError(f"{error.filename or 'standard output'} cannot be used ({error.strerror}): make room"))
        sys.exit(1)
    except (MemoryError, RuntimeError) as error:
        if not (isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"):  # torch's, of a GPU
            raise
        print_error(KbqError(f"too little memory ({first_line(error)}): try --device cpu, or fewer --workers"))
        sys.exit(1)
    if status == 130:  # what Typer makes of Ctrl-C
        note("stopped; what is on the disk stays, the same command resumes")
    sys.exit(status or 0)


if __name__ == "__main__":
    main()
