"""The `kbq` command: runs `cli.py`, which stands beside the package in a checkout and inside it once installed."""

import importlib.util
import os
import sys

from kbq.system.paths import own


def main() -> None:
    """Run the command line."""
    # Waiting threads that spin make a busy machine several times slower; this must be said before torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy multiplies only small matrices here
    spec = importlib.util.spec_from_file_location("kbq.cli", own("cli.py"))
    if spec is None or spec.loader is None:
        raise ImportError(f"{own('cli.py')} is missing: install kbq again")
    cli = importlib.util.module_from_spec(spec)
    sys.modules["kbq.cli"] = cli
    spec.loader.exec_module(cli)
    cli.main()


if __name__ == "__main__":
    main()
