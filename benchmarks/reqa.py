"""ReQA: rank all sentences for each question, and report how high the sentence with the answer
comes.

    python benchmarks/reqa.py NAME=EXAMPLES.json … [NAME=GOLD.jsonl,CORPUS …] --sparta MODEL
        [--untrained CHECKPOINT] [--terms 50 500] [--articles 5] [--sample 1000] [--name reqa]

MRR and R@1 are in percent, and ties are ranked at their worst. EXAMPLES is a reading-comprehension
file: its sentences are the candidates. GOLD is a KILT file: the candidates are the sentences of its
queries' gold pages, and the right ones hold a given place or, if only pages are given, an answer's
text. BM25 sees the sentence alone, and once more with its paragraph behind it, as SPARTA does.
"""

import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import bm25s
import numpy as np
import reporting
from measuring import arguments, records_of
from numpy.typing import NDArray

from kbq.corpus.readers import read_corpus
from kbq.model.tokenizer import tokenize
from kbq.storage.folders import folder_bytes
from kbq.text.queries import Query
from kbq.training.batches import read_examples
from kbq.training.sparta import calibrate_bias
from kbq.words.bm25 import query_words, words_of
from kbq.words.postings import Entries, Postings, write_postings
from kbq.words.sparta import SpartaConfig, SpartaModel, strongest_impacts

Scores = NDArray[np.float32]
TERMS = (50, 100, 500, 1000, 2000)
Place = tuple[int, int, int]  # passage, first character, character behind the last one


class Task(NamedTuple):
    """Passages as (title, text), and questions with the places of their answers."""

    passages: list[tuple[str, str]]
    questions: list[tuple[str, list[Place]]]


def from_examples(path: Path, articles: int) -> Task:
    """Take all passages of a reading-comprehension file, or of some articles at random."""
    passages = read_examples([path], doubtful=True)[0]
    groups = sorted({passage.group for passage in passages})
    kept = set(
        groups if not articles else random.Random(0).sample(groups, min(articles, len(groups)))
    )
    passages = [passage for passage in passages if passage.group in kept]
    questions = [
        (query.text, [(number, *place) for place in query.places])
        for number, passage in enumerate(passages)
        for query in passage.queries
    ]
    return Task([(passage.title, passage.text) for passage in passages], questions)


def from_kilt(gold: Path, corpus: Path, most: int) -> Task:
    """Take a sample of the queries, and the paragraphs of all their gold pages."""
    records = records_of(gold, most)
    wanted = {place["wikipedia_id"] for record in records for place in provenance(record)}
    passages: list[tuple[str, str]] = []
    of_page: dict[str, dict[int, int]] = {}  # page → paragraph → passage
    for page in read_corpus(str(corpus)):
        if page.page_id in wanted:
            of_page[page.page_id] = {
                p.number: len(passages) + i for i, p in enumerate(page.paragraphs)
            }
            passages += [(page.title, paragraph.text) for paragraph in page.paragraphs]

    def places(record: Any) -> Iterator[Place]:
        answers = {output["answer"] for output in record["output"] if "answer" in output}
        for place in provenance(record):
            paragraphs = of_page.get(place["wikipedia_id"], {})
            if "start_character" not in place:
                for number in paragraphs.values():
                    text = passages[number][1]
                    yield from (
                        (number, text.find(one), text.find(one) + len(one))
                        for one in answers
                        if one in text
                    )
            elif place["start_paragraph_id"] in paragraphs:
                yield (
                    paragraphs[place["start_paragraph_id"]],
                    place["start_character"],
                    place["end_character"],
                )

    return Task(
        passages,
        [(Query.of(str(record["input"])).words, list(places(record))) for record in records],
    )


def provenance(record: Any) -> list[Any]:
    return [place for output in record["output"] for place in output.get("provenance", [])]


class Candidates(NamedTuple):
    """All sentences, and each question with the right ones; questions without one are left out."""

    windows: list[Any]
    sentences: list[str]
    in_context: list[str]
    questions: list[tuple[str, list[int]]]


def candidates(task: Task, model: SpartaModel) -> Candidates:
    """Cut sentences as the model's tokenizer and windows do."""
    found = Candidates([], [], [], [])
    places: list[
        list[tuple[int, int, int]]
    ] = []  # of each passage: sentence, first character, behind
    titles = tokenize(model.tokenizer, [title for title, _ in task.passages])
    for title, (_, text) in zip(titles, task.passages, strict=True):
        windows = model.windows(title.ids, text)
        found.windows.extend(windows)
        places.append([])
        for sentence in (sentence for window in windows for sentence in window.sentences):
            places[-1].append((len(found.sentences), sentence.start, sentence.end))
            found.sentences.append(text[sentence.start : sentence.end])
            found.in_context.append(f"{found.sentences[-1]} {text}")
    for text, answers in task.questions:
        gold = {
            n
            for passage, a, b in answers
            for n, start, end in places[passage]
            if start <= a and b <= end
        }
        if gold:
            found.questions.append((text, sorted(gold)))
    return found


def judged(
    questions: Sequence[tuple[str, list[int]]], scored: Callable[[str], Scores]
) -> dict[str, float]:
    """Return MRR and R@1 over the questions; of several right sentences the best one counts."""
    ranks = []
    for question, gold in questions:
        scores = scored(question)
        ranks.append(int((scores >= scores[gold].max()).sum()))
    found = np.array(ranks)
    return {
        "MRR": round(100 * float((1 / found).mean()), 2),
        "R@1": round(100 * float((found == 1).mean()), 2),
    }


def bm25(texts: Sequence[str]) -> Callable[[str], Scores]:
    """Index these texts with Lucene's weights; return a function that scores them for a question."""
    index = bm25s.BM25()
    index.index(words_of(texts), show_progress=False)

    def scored(question: str) -> Scores:
        known = [word for word in query_words(Query.of(question)) if word in index.vocab_dict]
        return np.asarray(index.get_scores(known)) if known else np.zeros(len(texts), np.float32)

    return scored


def sparta(model: SpartaModel, given: Candidates, sizes: Sequence[int]) -> dict[str, object]:
    """Score by sums of looked-up impacts, for each number of terms kept of a sentence."""
    found = list(strongest_impacts(model, given.windows, max(sizes)))
    figures: dict[str, object] = {}
    for k in sizes:
        numbers = np.repeat(
            [number for number, *_ in found], [min(k, len(terms)) for _, terms, _ in found]
        )
        terms, weights = (
            np.concatenate([row[column][:k].numpy() for row in found]) for column in (1, 2)
        )
        figures[f"{k} terms"] = looked_up(
            model, given, Entries(numbers.astype(np.int32), terms.astype(np.int32), weights)
        )
    return figures


def looked_up(model: SpartaModel, given: Candidates, entries: Entries) -> dict[str, float]:
    """Return the scores and the size of an index of these impacts."""
    with tempfile.TemporaryDirectory() as folder:
        write_postings(Path(folder) / "i", model.vocabulary, entries, "weights", of="")
        index = Postings(Path(folder) / "i", "weights")
        index.expect(len(given.sentences))

        def scored(text: str) -> Scores:
            return index.scores(model.tokenizer.convert_ids_to_tokens(model.query_terms(text)))

        size = round(folder_bytes(Path(folder) / "i") / len(given.sentences))
        return judged(given.questions, scored) | {"bytes per sentence": size}


def main() -> None:
    options = arguments(
        __doc__,
        tasks=[str],
        sparta=None,
        untrained=None,
        terms=TERMS,
        articles=0,
        sample=1000,
        name="reqa",
    )
    model = SpartaModel.open(Path(options.sparta))
    trained = {
        name: fact
        for name, fact in model.config.training.items()
        if name in ("outcome", "settings")
    }
    figures: dict[str, object] = {"model": model.fingerprint(), "trained on": trained}
    files = [Path(options.sparta) / "sparta.json"]
    for name, _, source in (task.partition("=") for task in options.tasks):
        paths = [Path(path) for path in source.split(",")]
        files += paths
        task = (
            from_kilt(paths[0], paths[1], options.sample)
            if paths[1:]
            else from_examples(paths[0], options.articles)
        )
        given = candidates(task, model)
        rows: dict[str, object] = {
            "sentences": len(given.sentences),
            "questions": len(given.questions),
        }
        rows["BM25, sentence"] = judged(given.questions, bm25(given.sentences))
        rows["BM25, sentence and paragraph"] = judged(given.questions, bm25(given.in_context))
        if options.untrained:
            untrained = SpartaModel.new(
                options.untrained, SpartaConfig(model.config.window, model.config.marked)
            )
            untrained.network.eval()
            calibrate_bias(untrained, given.windows)
            rows["untrained"] = sparta(untrained, given, [500])
        rows["SPARTA"] = sparta(model, given, options.terms)
        figures[name] = rows
    reporting.write(options.name, figures, files, seed=0)


if __name__ == "__main__":
    main()
