"""Options: what is chosen by name, in Python and on the command line."""

from typing import Literal, TypeAlias

CorpusFormat: TypeAlias = Literal["auto", "kilt", "jsonl", "squad", "dpr", "text"]
IndexKind = Literal["exact", "approximate", "compact", "tiny"]
WantedKind = Literal["auto", "exact", "approximate", "compact", "tiny"]
Unit = Literal["phrase", "sentence", "paragraph", "document"]
Backend = Literal["auto", "dense", "bm25", "sparse", "hybrid"]
WordBackend = Literal["bm25", "sparse"]
WORDS_ALONE: tuple[WordBackend, ...] = ("bm25", "sparse")
WeightType = Literal["float32", "int8"]
