"""Errors: the exceptions of kbq; one sentence names the thing, the value, the way out."""

import re
from collections.abc import Sequence

MOST_PROBLEMS = 100  # listed by a command at most
MOST_QUOTED = 300  # characters of another library's message, which may quote a file
_NO_MEMORY = re.compile(  # words of torch, oneDNN, C++ and the loader of libraries
    "(cannot|can't|could not|failed to|unable to) (allocate|create a memory|map segment)|(out "
    "of|not enough) memory|bad_alloc|ALLOC_FAILED|can't start new thread",
    re.IGNORECASE,
)
_COMMAND = re.compile(r"(`[^`]*`)")
_OPTION = re.compile(r"(?<![^\s(])--([a-z][a-z-]*[a-z])(=?)")


def spoken(message: str) -> str:
    """Return a message with its options as Python and JSON have them, and with commands between
    backticks as they are.

    >>> spoken("leave --min-probability out, or use --device=cpu; `kbq verify KB --repair`")
    'leave min_probability=… out, or use device=cpu; `kbq verify KB --repair`'
    >>> spoken("models--someone--model is no model")
    'models--someone--model is no model'
    """
    parts = _COMMAND.split(message)
    parts[::2] = [
        _OPTION.sub(lambda name: name[1].replace("-", "_") + (name[2] or "=…"), part)
        for part in parts[::2]
    ]
    return "".join(parts)


class KbqError(Exception):
    """An input, a folder or a request that kbq refuses; `kbq` prints the message and exits with
    status 1.

    A message names options as a command line has them. `typed` and `typed_problems` are for
    commands, and for errors that quote this one; `str()` and `problems` are for Python and HTTP.

    Args:
        message: one sentence, with options as they are typed: --min-probability.
        problems: all problems ("file:line: problem") if several were found at once.
        is_usage: the request is invalid, not the input; then the exit status is 2.
    """

    def __init__(self, message: str, problems: Sequence[str] = (), is_usage: bool = False) -> None:
        super().__init__(message)
        self.typed_problems = tuple(problems)
        self.is_usage = is_usage

    @property
    def typed(self) -> str:
        """The message, with options as they are typed."""
        return str(self.args[0])

    @property
    def problems(self) -> tuple[str, ...]:
        """All problems, with options as Python has them."""
        return tuple(map(spoken, self.typed_problems))

    def __str__(self) -> str:
        return spoken(self.typed)


class CorpusError(KbqError):
    """A corpus, or a line of one, cannot be read."""


class ModelError(KbqError):
    """A model is missing, damaged, or belongs to another model."""


class KnowledgeBaseError(KbqError):
    """A knowledge base is missing, incomplete, damaged, in use, or of another format."""


class QueryError(KbqError):
    """A query, or a combination of search options, cannot be answered."""


class ClusterError(KbqError):
    """A cluster, or a machine of it, cannot be used or does not answer."""


class TrainingError(KbqError):
    """Training data cannot be used, or a training run cannot continue."""


class EvaluationError(KbqError):
    """Predictions or gold data cannot be scored."""


def first_line(error: BaseException) -> str:
    """Return the first line of another library's error message, to quote it in one of ours, or the
    beginning of it.
    """
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    if len(line) <= MOST_QUOTED:
        return line
    return f"{line[:MOST_QUOTED]}…"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory is short, whichever library raised it.

    >>> is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."))
    True
    >>> is_out_of_memory(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"))
    True
    >>> is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    False
    """
    return isinstance(error, MemoryError) or _NO_MEMORY.search(str(error)) is not None
