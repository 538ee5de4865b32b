"""Augmentation: a corpus becomes training examples, JSON lines of one paragraph each. The whole of `kbq augment`.

Either questions are generated for the mentions of each paragraph and kept where a reader answers them with the same
mention (arXiv 2012.12624, section 4.1), or triples become slot queries: on the paragraphs of a corpus that state them,
or on those that a search in a knowledge base finds. `OUT.partial` holds a line for every paragraph that is done, so
that a killed run goes on; its first line says of which run it is.
"""

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from kbq.answers import Backend, CorpusFormat
from kbq.augmentation.mentions import FindMentions, entity_finder
from kbq.augmentation.slots import Question, Slots, found_paragraphs
from kbq.corpus.readers import read_corpus
from kbq.dump.manifest import MANIFEST, is_knowledge_base
from kbq.encoding.model_folder import local_folder
from kbq.errors import KbqError, TrainingError
from kbq.finetuning.triples import read_triples
from kbq.kb import KnowledgeBase
from kbq.kilt.text_scores import normalise
from kbq.reading.network import CrossEncoder
from kbq.system.counting import Summed
from kbq.system.files import digest_of, replacing, writing_alone, writing_to
from kbq.training.generator import PROMPT, Generator, Marked
from kbq.training.reader import read_answers

AT_A_TIME = 8  # paragraphs


@dataclass(frozen=True, slots=True)
class AugmentationRequest:
    """What examples are made from; either a generator and a reader, or triples."""

    corpus: str  # with triples, also the folder of a knowledge base
    out: Path
    format: CorpusFormat = "auto"
    generator: str = ""  # a sequence-to-sequence checkpoint: hub name or folder
    reader: str = ""  # a question-answering checkpoint
    triples: Path | None = None
    entities: str = "written"  # or the name of a spaCy pipeline
    prompt: str = PROMPT
    beams: int = 1
    each: int = 5  # mentions asked for in a paragraph, at most
    depth: int = 5  # paragraphs that are found for a query
    backend: Backend = "auto"  # that finds them
    seed: int = 0
    device: str = "auto"


@dataclass(frozen=True, slots=True)
class AugmentationOutcome(Summed):
    """How many paragraphs were read, questions asked, and questions kept, on how many paragraphs."""

    paragraphs: int = 0
    asked: int = 0
    kept: int = 0
    paragraphs_kept: int = 0


Line = dict[str, Any]
Lines = Callable[[int], Iterator[Line]]  # takes a number; yields a line for each paragraph from that one on


def augment(request: AugmentationRequest, report: Callable[[int, int], None]) -> AugmentationOutcome:
    """Write the examples. `report` takes how many paragraphs are read, and how many questions are kept.

    Raises:
        TrainingError: `out` is there, or cannot be written, or a run of another kind was stopped there.
        KbqError: corpus, triples, generator or reader cannot be used.
    """
    if request.out.exists():
        raise TrainingError(f"{request.out} already exists: choose another file for --out")
    partial = request.out.with_name(f"{request.out.name}.partial")
    lines = _generated(request) if request.triples is None else _of_triples(request, request.triples)
    with writing_to(request.out, TrainingError, goes_on=True):
        request.out.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("a+", encoding="utf-8", newline="\n") as file, writing_alone(partial):
            done = _go_on(file, _description(request), partial)
            try:
                rest = lines(done.paragraphs)
                while part := list(islice(rest, AT_A_TIME)):
                    for line in part:
                        _write(file, line)
                        done += _counts(line)
                    file.flush()
                    report(done.paragraphs, done.kept)
            except KbqError:
                if len(list(islice(_lines(file), 2))) < 2:  # it holds its header alone: a wrong corpus, say
                    partial.unlink()
                raise
            with replacing(request.out) as finished, finished.open("w", encoding="utf-8", newline="\n") as out:
                for line in islice(_lines(file), 1, None):
                    if line["questions"]:
                        _write(out, line)
    partial.unlink()
    return done


def _counts(line: Line) -> AugmentationOutcome:
    """What one paragraph adds to the outcome."""
    kept = len(line["questions"])
    return AugmentationOutcome(1, line["asked"], kept, int(kept > 0))


def _of_triples(request: AugmentationRequest, triples: Path) -> Lines:
    golds = read_triples(triples)
    if is_knowledge_base(Path(request.corpus)):
        kb = KnowledgeBase.open(Path(request.corpus), device=request.device)
        paragraphs = found_paragraphs(kb, golds, request.depth, request.backend)
    else:
        slots = Slots(golds)
        paragraphs = (
            (page.title, paragraph.text[paragraph.begin :], questions)
            for page in read_corpus(request.corpus, request.format)
            for paragraph, questions in zip(page.paragraphs, slots.of(page), strict=True)
        )
    return lambda first: (_line(*paragraph) for paragraph in islice(paragraphs, first, None))


def _line(title: str, text: str, questions: list[Question], asked: int | None = None) -> Line:
    asked = len(questions) if asked is None else asked
    return {"title": title, "context": text, "asked": asked, "questions": questions}


def _generated(request: AugmentationRequest) -> Lines:
    find = entity_finder(request.entities)
    generator = Generator.open(request.generator, request.prompt, request.beams, request.device)
    reader = CrossEncoder.open(request.reader, request.device)

    def lines(first: int) -> Iterator[Line]:
        paragraphs = (
            (page.title, paragraph.text[paragraph.begin :])
            for page in read_corpus(request.corpus, request.format)
            for paragraph in page.paragraphs
        )
        rest = islice(paragraphs, first, None)
        while part := list(islice(rest, AT_A_TIME)):
            yield from lines_of(part)

    def lines_of(part: Sequence[tuple[str, str]]) -> Iterator[Line]:
        marked: list[tuple[int, int, Marked]] = []  # place in the part, first character, mention
        for place, (title, text) in enumerate(part):
            for start, end in _some_mentions(find, text, request):
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
        return (_line(*paragraph, kept[place], counts[place]) for place, paragraph in enumerate(part))

    return lines


def _some_mentions(find: FindMentions, text: str, request: AugmentationRequest) -> list[tuple[int, int]]:
    """At most `each` of the mentions; the choice is the same in every run."""
    by_text = {text[start:end]: (start, end) for start, end in reversed(find(text))}  # a repeated name counts once
    spans = sorted(by_text.values())
    return sorted(random.Random(f"{request.seed} {text}").sample(spans, min(request.each, len(spans))))


def _description(request: AugmentationRequest) -> Line:
    """What decides which examples are made."""
    corpus = Path(request.corpus) / MANIFEST if is_knowledge_base(Path(request.corpus)) else Path(request.corpus)
    sources = [corpus, request.triples, *map(local_folder, filter(None, (request.generator, request.reader)))]
    return {
        "corpus": Path(request.corpus).name,
        "digests": [digest_of(path) for path in sources if path is not None and path.exists()],
        "began": time.time() if request.corpus == "-" else 0,  # a pipe may bring another text every time
        "generator": Path(request.generator).name,
        "reader": Path(request.reader).name,
        "options": [
            request.format,
            request.entities,
            request.prompt,
            request.beams,
            request.each,
            request.depth,
            request.backend,
            request.seed,
        ],
    }


def _go_on(file: TextIO, description: Line, path: Path) -> AugmentationOutcome:
    """What a run that was killed had done; a half-written last line is cut off.

    Raises:
        TrainingError: it was another run.
    """
    lines = _lines(file)
    try:
        first = next(lines, None)
        if first is not None and first != description:
            raise TrainingError(f"{path} is of a run with another corpus or other options: delete it to start anew")
        done = sum(map(_counts, lines), AugmentationOutcome())
    except (ValueError, KeyError, TypeError) as error:
        raise TrainingError(f"{path} was not made by kbq augment, or is damaged ({error}): delete it") from None
    file.truncate(file.tell())
    if first is None:
        _write(file, description)
    return done


def _lines(file: TextIO) -> Iterator[Line]:
    """The whole lines of a file, from its beginning; its position is then after the last one."""
    file.seek(0)
    while True:
        place = file.tell()
        text = file.readline()
        if not text.endswith("\n"):
            file.seek(place)
            return
        yield json.loads(text)


def _write(file: TextIO, line: Line) -> None:
    file.write(json.dumps(line, ensure_ascii=False) + "\n")
