"""Augmentation: a corpus becomes training examples, JSON lines of one paragraph each. The whole of `kbq augment`.

Either questions are generated for the mentions of each paragraph and kept where a reader answers them with the same
mention (arXiv 2012.12624, section 4.1), or triples become slot queries. `OUT.partial` holds a line for every paragraph
that is done, so that a killed run goes on; its first line says of which run it is.
"""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from kbq.augmentation.generator import PROMPT, Generator, Marked
from kbq.augmentation.mentions import FindMentions, entity_finder
from kbq.augmentation.slots import Question, Slots
from kbq.corpus import CorpusFormat, read_corpus
from kbq.encoding.cross_encoder import CrossEncoder
from kbq.errors import TrainingError
from kbq.finetuning.triples import read_triples
from kbq.kilt.answers import normalise
from kbq.records import Document, Paragraph
from kbq.training.teacher import read_answers
from kbq.workshop import file_digest

AT_A_TIME = 8  # paragraphs


@dataclass(frozen=True, slots=True)
class AugmentationRequest:
    """What to make from what; either a generator and a reader, or triples."""

    corpus: str
    out: Path
    format: CorpusFormat = "auto"
    generator: str = ""  # a sequence-to-sequence checkpoint: hub name or folder
    reader: str = ""  # a question-answering checkpoint
    triples: Path | None = None
    entities: str = "written"  # or the name of a spaCy pipeline
    prompt: str = PROMPT
    beams: int = 1
    each: int = 5  # mentions asked for in a paragraph, at most
    seed: int = 0
    device: str = "auto"


@dataclass(frozen=True, slots=True)
class AugmentationOutcome:
    """How many paragraphs were read, questions asked, and questions kept, on how many paragraphs."""

    paragraphs: int
    asked: int
    kept: int
    paragraphs_kept: int


Line = dict[str, Any]
Ask = Callable[[Sequence[tuple[Document, Paragraph]]], list[tuple[int, list[Question]]]]


def augment(request: AugmentationRequest, report: Callable[[int, int], None]) -> AugmentationOutcome:
    """Write the examples. `report` takes how many paragraphs are read, and how many questions are kept.

    Raises:
        TrainingError: `out` is there, or cannot be written, or a run of another kind was stopped there.
        KbqError: corpus, triples, generator or reader cannot be used.
    """
    if request.out.exists():
        raise TrainingError(f"{request.out} already exists: choose another file for --out")
    partial = request.out.with_name(request.out.name + ".partial")
    ask = _slots(request) if request.triples is not None else _generated(request)
    try:
        request.out.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("a+", encoding="utf-8", newline="\n") as file:
            done = _go_on(file, _description(request), partial)
            paragraphs = (
                (document, paragraph)
                for document in read_corpus(request.corpus, request.format)
                for paragraph in document.paragraphs
            )
            count, kept = len(done), sum(len(line["questions"]) for line in done)
            rest = islice(paragraphs, count, None)
            while part := list(islice(rest, AT_A_TIME)):
                for (document, paragraph), (asked, questions) in zip(part, ask(part), strict=True):
                    _write(file, _line(document, paragraph, asked, questions))
                    kept += len(questions)
                file.flush()
                count += len(part)
                report(count, kept)
            lines = _read(file)[1:]
        with partial.with_suffix(".tmp").open("w", encoding="utf-8", newline="\n") as file:
            for line in lines:
                if line["questions"]:
                    _write(file, line)
    except OSError as error:
        raise TrainingError(
            f"{request.out} cannot be written ({error.strerror}): make room (the same command goes on where it "
            "stopped), or choose another --out"
        ) from error
    partial.with_suffix(".tmp").replace(request.out)
    partial.unlink()
    with_questions = [line for line in lines if line["questions"]]
    return AugmentationOutcome(
        len(lines),
        sum(line["asked"] for line in lines),
        sum(len(line["questions"]) for line in lines),
        len(with_questions),
    )


def _line(document: Document, paragraph: Paragraph, asked: int, questions: list[Question]) -> Line:
    text = paragraph.text[paragraph.begin :]
    return {"title": document.title, "context": text, "asked": asked, "questions": questions}


def _slots(request: AugmentationRequest) -> Ask:
    slots = Slots(read_triples(request.triples or Path()))

    def ask(part: Sequence[tuple[Document, Paragraph]]) -> list[tuple[int, list[Question]]]:
        pages = {document.id: document for document, _ in part}
        stated = {
            (page.id, paragraph.number): questions
            for page in pages.values()
            for paragraph, questions in zip(page.paragraphs, slots.of(page), strict=True)
        }
        found = [stated[document.id, paragraph.number] for document, paragraph in part]
        return [(len(questions), questions) for questions in found]

    return ask


def _generated(request: AugmentationRequest) -> Ask:
    find = entity_finder(request.entities)
    generator = Generator.open(request.generator, request.prompt, request.beams, request.device)
    reader = CrossEncoder.open(request.reader, request.device)

    def ask(part: Sequence[tuple[Document, Paragraph]]) -> list[tuple[int, list[Question]]]:
        marked: list[tuple[int, int, Marked]] = []  # place in the part, first character, mention
        for place, (document, paragraph) in enumerate(part):
            text = paragraph.text[paragraph.begin :]
            for start, end in _some_mentions(find, text, request):
                marked.append((place, start, Marked(text[:start], text[start:end], text[end:], document.title)))
        questions = generator.questions([mention for *_, mention in marked])
        texts = [mention.before + mention.answer + mention.after for *_, mention in marked]
        answers = read_answers(reader, list(zip(questions, texts, strict=True)))
        found: list[tuple[int, list[Question]]] = [(0, []) for _ in part]
        for (place, start, mention), question, answer in zip(marked, questions, answers, strict=True):
            asked, kept = found[place]
            if answer is not None and normalise(answer) == normalise(mention.answer) != "":
                kept.append({"question": question, "answers": [{"text": mention.answer, "answer_start": start}]})
            found[place] = asked + 1, kept
        return found

    return ask


def _some_mentions(find: FindMentions, text: str, request: AugmentationRequest) -> list[tuple[int, int]]:
    """At most `each` of them; which, is the same in every run."""
    found = {text[start:end]: (start, end) for start, end in reversed(find(text))}  # a name that comes twice, once
    spans = sorted(found.values())
    return sorted(random.Random(f"{request.seed} {text}").sample(spans, min(request.each, len(spans))))


def _description(request: AugmentationRequest) -> Line:
    """What decides the examples."""
    files = [Path(request.corpus), request.triples]
    return {
        "corpus": Path(request.corpus).name,
        "digests": [file_digest(path) for path in files if path is not None and path.is_file()],
        "generator": Path(request.generator).name,
        "reader": Path(request.reader).name,
        "options": [request.format, request.entities, request.prompt, request.beams, request.each, request.seed],
    }


def _go_on(file: TextIO, description: Line, path: Path) -> list[Line]:
    """The lines of a run that was killed; half a last line is cut off.

    Raises:
        TrainingError: it was another run.
    """
    lines = _read(file)
    if not lines:
        _write(file, description)
    elif lines[0] != description:
        raise TrainingError(f"{path} is of a run with another corpus or other options: delete it to start anew")
    return lines[1:]


def _read(file: TextIO) -> list[Line]:
    file.seek(0)
    end, lines = 0, []
    while (text := file.readline()).endswith("\n"):
        lines.append(json.loads(text))
        end = file.tell()
    file.seek(end)
    file.truncate()
    return lines


def _write(file: TextIO, line: Line) -> None:
    file.write(json.dumps(line, ensure_ascii=False) + "\n")
