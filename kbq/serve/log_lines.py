"""Log lines: a service logs each request as a line of JSON."""

import json
import logging
import sys
import time
from datetime import UTC, datetime
from typing import Any

AGAIN = 60.0  # seconds without one of asyncio's events, after which it is logged again
# What every record of a log has, or uvicorn adds.
STANDARD = {*vars(logging.makeLogRecord({})), "color_message"}


class JsonLines(logging.Formatter):
    """Format records of a log as lines of JSON, with the fields of `extra`."""

    def format(self, record: logging.LogRecord) -> str:
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
    """Log warnings and every request of the service to standard error.

    The root logger must have a handler before the MCP library is used: the library's own opens
    files to print a traceback, and so fails, and the event loop with it, where no more files may be
    opened.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.getLogger().handlers = [handler]
    logging.getLogger().setLevel(logging.WARNING)
    logging.getLogger("kbq.serve").setLevel(logging.INFO)
    passed: dict[str, float] = {}  # when each event was logged last

    # Asyncio says a thousand times a second that no file can be opened.
    def is_new(record: logging.LogRecord) -> bool:
        event = record.getMessage().partition("\n")[0]
        now = time.monotonic()
        last = passed.get(event, -AGAIN)
        passed[event] = now
        return now - last >= AGAIN

    logging.getLogger("asyncio").addFilter(is_new)
