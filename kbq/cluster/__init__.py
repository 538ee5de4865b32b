"""Cluster: kbq's work on the machines of a Ray cluster."""

import os

from kbq.errors import ClusterError, first_line

# Set before Ray is loaded: else it reports to its makers.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
# What it will do one day, without a warning.
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
try:
    import ray as _ray  # noqa: F401
except ImportError as missing:
    raise ClusterError(f"--ray needs Ray ({first_line(missing)}): pip install ray") from None
