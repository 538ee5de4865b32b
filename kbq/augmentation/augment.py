"""Augment: a corpus becomes training examples, JSON lines of one paragraph each. `kbq augment`.

Either questions are generated for the mentions of each paragraph and kept if a reader answers them with the mention
(arXiv 2012.12624, section 4.1), or triples become slot queries: on the paragraphs of a corpus that state them, or on
those that a search in a knowledge base finds. `OUT.partial` holds a line for every paragraph that is done, so that a
killed run resumes; its first line describes the run.
"""

import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from kbq.answers import Backend, CorpusFormat
from kbq.augmentation.mentions import FindMentions, entity_finder
from kbq.corpus.pages import Page
from kbq.corpus.readers import read_corpus
from kbq.dump.manifest import MANIFEST, is_knowledge_base
from kbq.errors import KbqError, TrainingError
from kbq.kilt.records import Gold
from kbq.model.model_folder import local_folder
from kbq.reading.reader import Reader
from kbq.search.search import BATCH
from kbq.storage.files import digest_of
from kbq.storage.folders import make_folders
from kbq.storage.locks import writing_alone
from kbq.storage.records import Summed, json_line
from kbq.storage.writing import open_to_grow, remove_file, replacing, whole_lines, writing_to
from kbq.text.answer_scores import normalise
from kbq.text.markers import content_start
from kbq.text.sentences import whole_words
from kbq.training.generator import PROMPT, Generator, Marked
from kbq.training.reader import read_answers
from kbq.tuning.triples import pages_of, read_triples, subject_of

if TYPE_CHECKING:
    from kbq.kb import KnowledgeBase

AT_A_TIME = 8  # paragraphs


@dataclass(frozen=True, slots=True)
class AugmentationOutcome(Summed):
    """Counts of paragraphs read, of questions asked and kept, and of paragraphs with a kept question."""

    paragraphs: int = 0
    asked: int = 0
    kept: int = 0
    paragraphs_kept: int = 0


Line = dict[str, Any]
Question = dict[str, object]  # as in a training file
Paragraph = tuple[str, str, list[Question]]  # title, text, and the questions that are known


def augment(
    corpus: str | Path,
    out: str | Path,
    *,
    format: CorpusFormat = "auto",
    generator: str = "",
    reader: str = "",
    triples: str | Path | None = None,
    entities: str = "written",
    prompt: str = PROMPT,
    beams: int = 1,
    each: int = 5,
    depth: int = 5,
    backend: Backend = "auto",
    seed: int = 0,
    device: str = "auto",
    report: Callable[[int, int], None] = lambda paragraphs, questions: None,
) -> AugmentationOutcome:
    """Write examples, either with a generator and a reader, or from triples. A killed run resumes.

    Args:
        corpus: a file or folder; with triples, also the folder of a knowledge base.
        out: a new file.
        generator: a sequence-to-sequence checkpoint: hub name or folder.
        reader: a question-answering checkpoint, or `default`.
        triples: KILT lines, or a table; see `read_triples`.
        entities: what is asked for: `written` (names and numbers), or the entities of a spaCy pipeline, by its name.
        prompt: what the generator reads; see `Generator.open`.
        beams: of the generator's search.
        each: mentions of a paragraph that are asked for, at most.
        depth: paragraphs that the knowledge base finds for a query.
        backend: of that search.
        report: called with the number of paragraphs read, and of questions kept.

    Raises:
        TrainingError: `out` exists or cannot be written, or a run with another corpus or options was stopped there.
        KbqError: corpus, triples, generator or reader cannot be used.
    """
    corpus, out = str(corpus), Path(out)
    _refuse_existing(out)
    partial = out.with_name(f"{out.name}.partial")
    options: list[str | int] = [format, entities, prompt, beams, each, depth, backend, seed]
    description = _description(corpus, generator, reader, None if triples is None else Path(triples), options)
    networks = None
    if triples is None:
        mentions = _some_mentions(entity_finder(entities), each, seed)
        networks = Generator.open(generator, prompt, beams, device), Reader.open(reader, device), mentions
        paragraphs = _texts(corpus, format)
    else:
        paragraphs = _stating(corpus, format, read_triples(Path(triples)), depth, backend, device)
    with writing_to(out, TrainingError, goes_on=True):
        make_folders(out.parent)
        with open_to_grow(partial) as file, writing_alone(partial):
            _refuse_existing(out)  # another process may have finished since
            done = _resumed(file, description, partial)
            try:
                rest = islice(paragraphs, done.paragraphs, None)
                while part := list(islice(rest, AT_A_TIME)):
                    for line in _generated(part, *networks) if networks else (_line(*one) for one in part):
                        _write(file, line)
                        done += _counts(line)
                    file.flush()
                    report(done.paragraphs, done.kept)
            except KbqError:
                if len(list(islice(_lines(file), 2))) < 2:  # it holds its header alone: a wrong corpus, say
                    remove_file(partial)
                raise
            with replacing(out) as finished, finished.open("wb") as target:
                for line in islice(_lines(file), 1, None):
                    if line["questions"]:
                        _write(target, line)
            remove_file(partial)
    return done


def _refuse_existing(out: Path) -> None:
    if out.exists():
        raise TrainingError(f"{out} already exists: choose another file for --out")


def _counts(line: Line) -> AugmentationOutcome:
    """Return what one paragraph adds to the outcome."""
    kept = len(line["questions"])
    return AugmentationOutcome(1, line["asked"], kept, int(kept > 0))


def _line(title: str, text: str, questions: list[Question], asked: int | None = None) -> Line:
    asked = len(questions) if asked is None else asked
    return {"title": title, "context": text, "asked": asked, "questions": questions}


# Questions that are generated


def _generated(
    part: Sequence[Paragraph], generator: Generator, reader: Reader, mentions: FindMentions
) -> Iterator[Line]:
    """Generate questions for the mentions of some paragraphs, and keep those that the reader answers likewise."""
    marked: list[tuple[int, int, Marked]] = []  # place in the part, first character, mention
    for place, (title, text, _) in enumerate(part):
        for start, end in mentions(text):
            marked.append((place, start, Marked(text[:start], text[start:end], text[end:], title)))
    questions = generator.questions([mention for *_, mention in marked])
    texts = [mention.before + mention.answer + mention.after for *_, mention in marked]
    answers = read_answers(reader, list(zip(questions, texts, strict=True)))
    kept: list[list[Question]] = [[] for _ in part]
    for (place, start, mention), question, answer in zip(marked, questions, answers, strict=True):
        if answer is not None and normalise(answer) == normalise(mention.answer) != "":
            places = [{"text": mention.answer, "answer_start": start}]
            kept[place].append({"question": question, "answers": places})
    counts = Counter(place for place, *_ in marked)
    return (_line(title, text, kept[place], counts[place]) for place, (title, text, _) in enumerate(part))


def _some_mentions(find: FindMentions, each: int, seed: int) -> FindMentions:
    """Return a function that finds at most `each` of the mentions; the choice is the same in every run."""

    def mentions(text: str) -> list[tuple[int, int]]:
        by_text = {text[start:end]: (start, end) for start, end in reversed(find(text))}  # a repeated name counts once
        spans = sorted(by_text.values())
        return sorted(random.Random(f"{seed} {text}").sample(spans, min(each, len(spans))))

    return mentions


def _texts(corpus: str, format: CorpusFormat) -> Iterator[Paragraph]:
    """Yield the paragraphs of a corpus, without questions."""
    for page in read_corpus(corpus, format):
        for paragraph in page.paragraphs:
            yield page.title, paragraph.text[paragraph.begin :], []


# Slot queries from triples


def _stating(
    corpus: str, format: CorpusFormat, golds: Sequence[Gold], depth: int, backend: Backend, device: str
) -> Iterator[Paragraph]:
    """Yield the paragraphs of a corpus, or those found in a knowledge base, with the triples that they state."""
    if is_knowledge_base(Path(corpus)):
        from kbq.kb import KnowledgeBase  # only here: it leans on training itself

        return _found(KnowledgeBase.open(Path(corpus), device=device), golds, depth, backend)
    by_page: dict[str, list[Gold]] = defaultdict(list)
    for gold in golds:
        for name in pages_of(gold) or {subject_of(gold)}:
            by_page[name].append(gold)
    return (
        (page.title, paragraph.text[paragraph.begin :], questions)
        for page in read_corpus(corpus, format)
        for paragraph, questions in zip(
            page.paragraphs, _stated(page, [*by_page.get(page.id, []), *by_page.get(page.title, [])]), strict=True
        )
    )


def _stated(page: Page, golds: Iterable[Gold]) -> list[list[Question]]:
    """Return the questions of each paragraph of a page from the triples about it.

    A paragraph states a triple if it contains the object, as whole words. Of several, the first one that names the
    subject, too, is taken, or else the first.
    """
    questions: list[list[Question]] = [[] for _ in page.paragraphs]
    texts = [paragraph.text[paragraph.begin :] for paragraph in page.paragraphs]
    for gold in {gold.id: gold for gold in golds}.values():
        stated = [(place, spans) for place, text in enumerate(texts) if (spans := _answers(gold, text))]
        if stated:
            place, spans = max(stated, key=lambda pair: (subject_of(gold) in texts[pair[0]], -pair[0]))
            questions[place].append({"id": gold.id, "question": gold.input, "answers": spans})
    return questions


def _found(kb: "KnowledgeBase", golds: Sequence[Gold], depth: int, backend: Backend) -> Iterator[Paragraph]:
    """Yield the `depth` best paragraphs of each query; no question without an answer there.

    Raises QueryError if a query cannot be read, or the knowledge base does not have what the backend asks for.
    """
    queries = [(gold, gold.input) for gold in golds if gold.input]
    for first in range(0, len(queries), BATCH):
        part = queries[first : first + BATCH]
        results = kb.query([text for _, text in part], depth, "paragraph", backend)
        for (gold, text), hits in zip(part, results, strict=True):
            for hit in hits:
                content = hit.context[content_start(hit.context) :]
                stated = _answers(gold, content)
                question: Question = {"id": gold.id, "question": text, "answers": stated}
                yield hit.title, content, [question] if stated else []


def _answers(gold: Gold, text: str) -> list[dict[str, object]]:
    """Return all places of an answer, as whole words."""
    spans = {
        (start, start + len(answer)): answer for answer in sorted(gold.answers) for start in whole_words(text, answer)
    }
    return [{"text": answer, "answer_start": start} for (start, _), answer in sorted(spans.items())]


# The file of a run


def _description(corpus: str, generator: str, reader: str, triples: Path | None, options: Sequence[str | int]) -> Line:
    """Return everything that decides which examples are made."""
    pages = Path(corpus) / MANIFEST if is_knowledge_base(Path(corpus)) else Path(corpus)
    sources = [pages, triples, *map(local_folder, filter(None, (generator, reader)))]
    return {
        "corpus": Path(corpus).name,
        "digests": [digest_of(path) for path in sources if path is not None and path.exists()],
        "began": time.time() if corpus == "-" else 0,  # a pipe may bring another text every time
        "generator": Path(generator).name,
        "reader": Path(reader).name,
        "options": list(options),
    }


def _resumed(file: BinaryIO, description: Line, path: Path) -> AugmentationOutcome:
    """Return the counts of a killed run; a half-written last line is cut off.

    Raises TrainingError if the file is from another run.
    """
    lines = _lines(file)
    try:
        first = next(lines, None)
        if first is not None and first != description:
            raise TrainingError(f"{path} is from a run with another corpus or other options: delete it to start again")
        done = sum(map(_counts, lines), AugmentationOutcome())
    except (ValueError, KeyError, TypeError) as error:
        raise TrainingError(f"{path} was not made by kbq augment, or is damaged ({error}): delete it") from None
    if first is None:
        _write(file, description)
    return done


def _lines(file: BinaryIO) -> Iterator[Line]:
    """Yield the whole lines of a file, from its beginning; its position is then after the last one."""
    return map(json.loads, whole_lines(file))


def _write(file: BinaryIO, line: Line) -> None:
    file.write(json_line(line).encode() + b"\n")
