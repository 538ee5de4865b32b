"""Errors: everything kbq refuses, said in one sentence with the thing, the value and the way out."""

from collections.abc import Sequence

MOST_PROBLEMS = 100  # that a command lists


class KbqError(Exception):
    """The input, the data or the folder is at fault; `cli.py` prints the message and exits with 1.

    `problems` holds every single problem where several were found at once ("file:line: what"). `is_usage`: not the
    input, but what was asked for is at fault; the exit status is 2.
    """

    def __init__(self, message: str, problems: Sequence[str] = (), is_usage: bool = False) -> None:
        super().__init__(message)
        self.problems = tuple(problems)
        self.is_usage = is_usage


class CorpusError(KbqError):
    """A corpus, or a line of it, that cannot be read."""


class ModelError(KbqError):
    """A model folder that is missing, damaged, or belongs to another model."""


class KnowledgeBaseError(KbqError):
    """A knowledge base folder that is missing, not whole, or of another kind."""


class QueryError(KbqError):
    """A query, or a way of asking it, that cannot be answered."""


class TrainingError(KbqError):
    """Training data or a training run that cannot go on."""


class EvaluationError(KbqError):
    """Predictions or gold that cannot be scored."""


def first_line(error: Exception) -> str:
    """The first line of an error of another library, for one of ours."""
    return (str(error) or type(error).__name__).strip().splitlines()[0]
