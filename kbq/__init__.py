"""kbq: build a dense knowledge base of phrases from a text corpus, and answer slot queries from it.

>>> import kbq
>>> kb = kbq.KnowledgeBase.sample()
>>> kb.query("Marie Curie [SEP] place of birth", k=1)[0].text
'Warsaw'
"""

from importlib import import_module
from typing import TYPE_CHECKING

from kbq.errors import (
    ClusterError,
    CorpusError,
    EvaluationError,
    KbqError,
    KnowledgeBaseError,
    ModelError,
    QueryError,
    TrainingError,
)

if TYPE_CHECKING:
    from kbq.answers import Answer
    from kbq.corpus.pages import Page
    from kbq.corpus.readers import read_corpus
    from kbq.kb import KnowledgeBase
    from kbq.kilt.evaluation import evaluate
    from kbq.kilt.task import Task
    from kbq.maintain.verify import verify
    from kbq.tables.outputs import export
    from kbq.tables.tables import Table

__version__ = "0.2.0"
__all__ = [
    "Answer", "ClusterError", "CorpusError", "EvaluationError", "KbqError", "KnowledgeBase",
    "KnowledgeBaseError", "ModelError", "Page", "QueryError", "Table", "Task", "TrainingError",
    "evaluate", "export", "read_corpus", "verify",
]  # fmt: skip
_MODULES = {
    "Answer": "kbq.answers",
    "KnowledgeBase": "kbq.kb",
    "Page": "kbq.corpus.pages",
    "Table": "kbq.tables.tables",
    "Task": "kbq.kilt.task",
    "evaluate": "kbq.kilt.evaluation",
    "export": "kbq.tables.outputs",
    "read_corpus": "kbq.corpus.readers",
    "verify": "kbq.maintain.verify",
}


def __getattr__(name: str) -> object:
    """Load a public name on its first use: `import kbq` alone loads no library."""
    if name not in _MODULES:
        raise AttributeError(f"module 'kbq' has no attribute {name!r}: it has {', '.join(__all__)}")
    globals()[name] = value = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
