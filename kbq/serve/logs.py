"""Logs: what a service, uvicorn and other libraries report becomes JSON, one line each, on standard error."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

STANDARD = {*vars(logging.makeLogRecord({})), "color_message"}  # what every record of a log has, or uvicorn adds


class JsonLines(logging.Formatter):
    """Records of a log as JSON, one a line, with what was given as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """A record as a line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in STANDARD}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def log_as_json() -> None:
    """Write what is logged to standard error: warnings, and of the service itself each request.

    The root logger must have a handler before the MCP library is used: it would give it one that opens files to
    print a traceback, and so fails, and the event loop with it, where no more files may be opened.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.getLogger().handlers = [handler]
    logging.getLogger().setLevel(logging.WARNING)
    logging.getLogger("kbq.serve").setLevel(logging.INFO)
