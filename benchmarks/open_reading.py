"""Open reading: answer questions from all paragraphs of SQuAD dev with vectors, with words too, and
with a reader.

    python benchmarks/open_reading.py squad/dev-v1.1.json.xz [--reader default] [--sample 1500]
"""

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

import reporting
from measuring import arguments

from kbq.answers import Answer
from kbq.corpus.pages import Page, Paragraph
from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.reading.reader import Reader, with_retrieval
from kbq.search.options import DEPTH, RETRIEVAL_WEIGHT, SearchOptions
from kbq.training.batches import read_examples
from kbq.training.quantisation import answer_scores
from kbq.training.reader import read_answers


def scores(answers: Sequence[str | None], golds: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return EM and F1 in percent; a missing answer is wrong."""
    em, f1 = answer_scores([answer or "" for answer in answers], golds)
    return {"em": em, "f1": f1}


def firsts(found: Sequence[Sequence[Answer]]) -> list[str]:
    """Return the best answer to each question."""
    return [hits[0].text if hits else "" for hits in found]


def main() -> None:
    options = arguments(__doc__, dev=Path, reader="default", sample=1500)
    model, reader = Model.open("default"), Reader.open(options.reader)
    passages, _ = read_examples([options.dev], doubtful=True)
    asked = [(passage.text, query) for passage in passages for query in passage.queries]
    asked = random.Random(0).sample(asked, min(options.sample, len(asked)))
    texts, golds = [query.text for _, query in asked], [query.answers for _, query in asked]
    given = read_answers(reader, [(query.text, text) for text, query in asked])
    figures: dict[str, object] = {
        "reader": reader.fingerprint(),
        "paragraphs": len(passages),
        "questions": len(asked),
        "read in the gold paragraph": scores(given, golds),
    }
    pages = [Page(str(n), one.title, (Paragraph(0, one.text),)) for n, one in enumerate(passages)]
    with tempfile.TemporaryDirectory() as folder:
        kb = KnowledgeBase.build(pages, Path(folder) / "kb", model)
        for backend in ("dense", "hybrid"):
            figures[backend] = scores(firsts(kb.query(texts, 1, backend=backend, rerank=0)), golds)
        figures["hybrid, judged"] = scores(firsts(kb.query(texts, 1)), golds)
        paragraphs = kb.query(texts, DEPTH, "paragraph")
    phrases = [reader.read(text, found) for text, found in zip(texts, paragraphs, strict=True)]
    scaled = RETRIEVAL_WEIGHT * kb.searcher.plan(SearchOptions()).score_scale
    ranked = [with_retrieval(*both, scaled) for both in zip(phrases, paragraphs, strict=True)]
    figures[f"hybrid, read, the search counts {RETRIEVAL_WEIGHT:g}"] = scores(firsts(ranked), golds)
    reporting.write("open_reading", figures, [options.dev], seed=0)


if __name__ == "__main__":
    main()
