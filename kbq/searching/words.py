"""Words: the word indexes that a knowledge base has beside its vectors, and what they add to a query's scores."""

from collections.abc import Callable, Sequence
from pathlib import Path

from kbq.dump.manifest import Manifest
from kbq.dump.shards import Shard
from kbq.errors import QueryError
from kbq.options import WordBackend
from kbq.searching.lexical import HybridWeights, LexicalScores
from kbq.sparse.bm25 import missing_words, open_bm25, query_words
from kbq.sparse.sparta_impacts import PieceTokenizer, SentenceImpacts
from kbq.sparse.spelling import common_word, written_here
from kbq.text.markers import MENTION, slot_of


class WordIndexes:
    """BM25 and learned impacts (SPARTA) of all shards; either list is empty where the knowledge base has none."""

    def __init__(self, folder: Path, manifest: Manifest, shards: Sequence[Shard]) -> None:
        """Raises KnowledgeBaseError when files that the manifest names are missing or damaged."""
        self._folder, self._shards = folder, shards
        self.bm25 = open_bm25(shards) if manifest.bm25 else []
        self.sparta = [SentenceImpacts(shard, manifest) for shard in shards] if manifest.sparta else []
        self._spellings: dict[str, str | None] = {}  # found for a word before: thousands of queries may share one
        self._pieces = PieceTokenizer(folder, manifest) if manifest.sparta else None

    def __bool__(self) -> bool:
        """Whether there is an index of either kind."""
        return bool(self.bm25 or self.sparta)

    def scores(self, texts: Sequence[str], backend: WordBackend, weight: float = 1.0) -> LexicalScores:
        """The lexical scores of these queries: learned impacts for the backend sparse, else BM25.

        Raises:
            QueryError: the knowledge base has no such index.
        """
        if backend == "sparse":
            if self._pieces is None:
                raise QueryError(
                    f"{self._folder} has no learned impacts: add them with `kbq index {self._folder} --sparta MODEL`"
                )
            return LexicalScores(self._shards, self.sparta, [self._pieces.terms(text) for text in texts], weight)
        if not self.bm25:
            raise QueryError(f"{self._folder} has no BM25 index: add one with `kbq index {self._folder} --bm25`")
        return LexicalScores(self._shards, self.bm25, [query_words(text) for text in texts], weight)

    def all_scores(self, texts: Sequence[str], weights: HybridWeights) -> list[LexicalScores]:
        """The scores of every index that is there, weighted.

        Raises:
            QueryError: there is none.
        """
        sources = [self.scores(texts, "sparse", weights.sparta)] if self.sparta else []
        if self.bm25 or not sources:
            sources.append(self.scores(texts, "bm25", weights.bm25))
        return sources

    def missing(self, text: str) -> list[str]:
        """Words of a text that no page has in any form; none where there is no BM25 index to tell."""
        return missing_words(text, self.bm25) if self.bm25 else []

    def unknown(self, text: str, number: Callable[[str], int | None]) -> dict[str, str | None]:
        """Words of a query that no page has, each with what may have been meant; None where nothing is like it.

        They are mistyped, or names that this corpus does not have. A relation or a question may well be put in words
        that no page uses: they count only where the encoder's vocabulary lacks them, too (where `number` gives None).
        """
        mention = MENTION.search(text)
        subject, question = (mention[1], "") if mention else slot_of(text) or ("", text)
        suggestions = {word: self._written_here(word) for word in self.missing(subject)}
        for word in self.missing(question):
            if word not in suggestions and number(word) is None:
                name = self._written_here(word) if word[0].isupper() else None  # it may be a name
                suggestions[word] = name or common_word(word, number) or self._written_here(word)
        return suggestions

    def _written_here(self, word: str) -> str | None:
        if word not in self._spellings:
            self._spellings[word] = written_here(word, self._shards, self.bm25)
        return self._spellings[word]
