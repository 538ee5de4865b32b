"""Augment: make training examples from a corpus, as JSON lines of one paragraph each.
`kbq augment`.

Either a checkpoint asks for the mentions of each paragraph, and questions are kept if a reader
answers them with the mention (arXiv 2012.12624, section 4.1), or triples become slot queries on the
paragraphs that state them, or known questions get hard negatives (arXiv 2109.08133, section 4.2).
Mentions are the entities that spaCy finds or, without it, names and numbers by their spelling.
"""

import random
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import jsonlines
import torch

from kbq.answers import content_start
from kbq.augmentation.options import AugmentOptions, Negatives
from kbq.corpus.pages import Page
from kbq.corpus.readers import read_corpus
from kbq.dump.manifest import is_knowledge_base
from kbq.errors import TrainingError
from kbq.kilt.records import Gold
from kbq.model.backbone import sequence_to_sequence
from kbq.model.devices import autocast, choose_device
from kbq.model.tokenizer import opens_sentence
from kbq.reading.reader import Reader
from kbq.search.options import Backend
from kbq.search.search import BATCH
from kbq.storage.folders import make_folders
from kbq.storage.records import Summed, json_line
from kbq.storage.writing import replacing, writing_to
from kbq.text.answer_scores import normalise_answer
from kbq.text.whole_words import whole_words
from kbq.training.batches import Passage, TrainingQuery, read_examples
from kbq.training.reader import read_answers
from kbq.tuning.triples import pages_of, read_triples, subject_of

if TYPE_CHECKING:
    from kbq.kb import KnowledgeBase

Span = tuple[int, int]  # characters [start, end)
FindMentions = Callable[[str], list[Span]]
MARKS = "".join(
    letter for letter in map(chr, range(0x300, 0x1E000)) if unicodedata.category(letter)[0] == "M"
)
LETTERS = rf"\w[\w{MARKS}]*"
WORD = re.compile(rf"{LETTERS}(?:['’.\-]{LETTERS}|,\d{{3}}\b)*")
OPENING_WORDS = (
    "A After All Although An And As At Because Before Both But By During Each For From He Her His "
    "However If In It Its Many Most No Of On One Or Other She Since So Some That The Their Then "
    "There These They This Those Through Thus To Two Under Until Upon We When Where Which While "
    "Who With You"
)
OPENERS = frozenset(OPENING_WORDS.split())
JOINED_BY = re.compile(r" (?:(?:of|the|de|la|le|du|da|di|del|von|van|der|den|al|el|bin|ibn|y|&) )*")

DEFAULTS = AugmentOptions()
AT_A_TIME = 8  # paragraphs
# Most published checkpoints were trained with it.
PROMPT = "generate question: {before}<hl> {answer} <hl>{after}"
AROUND = 700  # characters that a checkpoint reads on each side of the answer
MAX_PROMPT = 512  # tokens of a prompt, where the checkpoint sets no limit
LONGEST = 48  # tokens of a question
NEAR = 20  # paragraphs that words find for a question, among which a hard negative is looked for


def written_mentions(text: str) -> list[Span]:
    """Find runs of words that begin with a capital or a digit.

    A single word that opens a sentence counts only if it has a capital elsewhere, too.

    >>> text = "Born in Łódź, she met the Duke of York. The city was rebuilt by 7 November 1945."
    >>> [text[start:end] for start, end in written_mentions(text)]
    ['Łódź', 'Duke of York', '7 November 1945']
    """
    words = [
        match for match in WORD.finditer(text) if match[0][0].isupper() or match[0][0].isdigit()
    ]
    opening = {match.start() for match in words if opens_sentence(text, match.start())}
    words = [match for match in words if match.start() not in opening or match[0] not in OPENERS]
    inside = {match[0] for match in words if match.start() not in opening}
    spans: list[list[int]] = []

    for match in words:
        if spans and JOINED_BY.fullmatch(text, spans[-1][1], match.start()):
            spans[-1][1] = match.end()
        else:
            spans.append([match.start(), match.end()])

    return [
        (start, end)
        for start, end in spans
        if start not in opening
        or not WORD.fullmatch(text, start, end)
        or text[start:end] in inside
        or text[start].isdigit()
    ]


def entity_finder(pipeline: str) -> FindMentions:
    """Return the function that finds mentions: a spaCy pipeline by its name, or `written`."""
    if pipeline == "written":
        return written_mentions
    missing = f"the entities of {pipeline} need spaCy: pip install spacy"
    try:
        import spacy

        missing = f"spaCy has no pipeline {pipeline}: python -m spacy download {pipeline}"
        language: Any = spacy.load(pipeline)
    except (ImportError, OSError):
        raise TrainingError(f"{missing}, or leave out --entities") from None
    return lambda text: [(entity.start_char, entity.end_char) for entity in language(text).ents]


@dataclass(frozen=True, slots=True)
class AugmentationOutcome(Summed):
    """Counts of paragraphs read, questions asked and kept, paragraphs with a kept question,
    questions with a hard negative, and known answers left out, whose place is missing or doubtful.
    """

    paragraphs: int = 0
    asked: int = 0
    kept: int = 0
    paragraphs_kept: int = 0
    with_negative: int = 0
    left_out: int = 0


Line = dict[str, Any]
Question = dict[str, object]  # a line of a training file
Paragraph = tuple[str, str, list[Question]]  # title, text, and the questions that are known


def augment(
    corpus: str | Path,
    out: str | Path,
    options: AugmentOptions,
    *,
    device: str = "auto",
    report: Callable[[int, int], None] = lambda paragraphs, questions: None,
) -> AugmentationOutcome:
    """Write examples: with a generator and a reader, from triples, or known ones with hard
    negatives.

    Args:
        corpus: a file or folder; with triples, also the folder of a knowledge base.
        out: a new file.
        options: with `triples`, a file of KILT lines or a table (see `read_triples`); with
            `questions`, a training file, and `corpus` is the folder of a knowledge base.
        report: called with the numbers of paragraphs read and questions kept.

    Raises:
        TrainingError: `out` exists or cannot be written.
        KbqError: corpus, triples, generator or reader cannot be used.
    """
    corpus = str(corpus)
    out = Path(out)
    done = AugmentationOutcome()
    lines: Iterator[Line]
    if out.exists():
        raise TrainingError(f"{out} already exists: choose another file for --out")
    if options.questions is not None:
        kb = _base_with_words(corpus, device)
        passages, repairs = read_examples(options.questions)
        done = AugmentationOutcome(left_out=repairs.lost + repairs.doubtful)
        lines = (_mined(kb, passage, options.negatives) for passage in passages)
    elif options.triples is None:
        find = entity_finder(options.entities)
        mentions = _some_mentions(find, options.each, options.seed)
        prompt = options.prompt or PROMPT
        generator = Generator.open(options.generator, prompt, options.beams, device)
        reader = Reader.open(options.reader, device)
        pages = read_corpus(corpus, options.format)
        texts = (
            (page.title, paragraph.text[paragraph.begin :])
            for page in pages
            for paragraph in page.paragraphs
        )
        lines = _generated(
            ((title, text, []) for title, text in texts), generator, reader, mentions
        )
    else:
        stating = _stating(corpus, read_triples(Path(options.triples)), options, device)
        lines = (
            _line(title, text, questions, len(questions)) for title, text, questions in stating
        )

    with writing_to(out, TrainingError, "choose another name"):
        make_folders(out.parent)
        with replacing(out) as finished, finished.open("w", encoding="utf-8") as target:
            writer = jsonlines.Writer(target, dumps=json_line)
            for number, line in enumerate(lines, 1):
                kept = len(line["questions"])
                negatives = sum("negatives" in question for question in line["questions"])
                asked = line.pop("asked")
                done += AugmentationOutcome(1, asked, kept, int(kept > 0), negatives)
                if kept:
                    writer.write(line)
                if number % AT_A_TIME == 0:
                    report(done.paragraphs, done.kept)

    return done


def _line(title: str, text: str, questions: list[Question], asked: int) -> Line:
    return {"title": title, "context": text, "asked": asked, "questions": questions}


# Questions that are generated


@dataclass(frozen=True, slots=True)
class Marked:
    """An answer, and the text before and after it."""

    before: str
    answer: str
    after: str
    title: str = ""


class Generator:
    """A sequence-to-sequence checkpoint of transformers that writes the most likely questions."""

    def __init__(self, network: Any, tokenizer: Any, prompt: str, beams: int) -> None:
        self.network = network
        self.tokenizer = tokenizer
        self.prompt = prompt
        self.beams = beams
        self.length = int(getattr(network.config, "max_position_embeddings", MAX_PROMPT))

    @classmethod
    def open(
        cls,
        source: str,
        prompt: str = PROMPT,
        beams: int = DEFAULTS.beams,
        device: str = "auto",
    ) -> Self:
        """Open a checkpoint (hub name or folder); the prompt has {answer}, and any of {before},
        {after}, {title}.

        Raises ModelError if there is no such checkpoint, TrainingError for another prompt.
        """
        try:
            filled = prompt.format(before="", answer="the answer", after="", title="")
        except (KeyError, IndexError, ValueError) as error:
            raise TrainingError(
                f"--prompt {prompt!r} has {error}: write {{before}}, {{answer}}, {{after}}, "
                "{title}"
            ) from None

        if "the answer" not in filled:
            raise TrainingError(f"--prompt {prompt!r} does not hold {{answer}}")
        network, tokenizer = sequence_to_sequence(source, source)
        return cls(network.to(choose_device(device)), tokenizer, prompt, beams)

    @torch.inference_mode()
    def questions(self, marked: Sequence[Marked]) -> list[str]:
        """Write a question for each answer, in one batch."""
        if not marked:
            return []
        inputs = self.tokenizer(
            [self._prompt(mention) for mention in marked],
            truncation=True,
            max_length=self.length,
            padding=True,
            return_token_type_ids=False,
            return_tensors="pt",
        )
        with autocast(self.network.device):
            generated = self.network.generate(
                **inputs.to(self.network.device),
                max_new_tokens=LONGEST,
                num_beams=self.beams,
                do_sample=False,
            )

        return [
            " ".join(text.split())
            for text in self.tokenizer.batch_decode(generated, skip_special_tokens=True)
        ]

    def _prompt(self, mention: Marked) -> str:
        """Put a mention and the words around it into the prompt."""
        before = mention.before
        after = mention.after
        if len(before) > AROUND:
            before = before[-AROUND:].partition(" ")[2]  # drops a word that is cut
        if len(after) > AROUND:
            after = after[:AROUND].rpartition(" ")[0]
        return self.prompt.format(
            before=before, answer=mention.answer, after=after, title=mention.title
        )


def _generated(
    paragraphs: Iterator[Paragraph], generator: Generator, reader: Reader, mentions: FindMentions
) -> Iterator[Line]:
    """Ask for the mentions of each paragraph, and keep the questions that the reader answers
    likewise.
    """
    while part := list(islice(paragraphs, AT_A_TIME)):
        marked = []  # place in the part, first character, mention
        for number, (title, text, _) in enumerate(part):
            for start, end in mentions(text):
                mention = Marked(text[:start], text[start:end], text[end:], title)
                marked.append((number, start, mention))

        questions = generator.questions([mention for *_, mention in marked])
        texts = [mention.before + mention.answer + mention.after for *_, mention in marked]
        answers = read_answers(reader, list(zip(questions, texts, strict=True)))
        kept: list[list[Question]] = [[] for _ in part]
        for (number, start, mention), question, answer in zip(
            marked, questions, answers, strict=True
        ):
            if (
                answer is not None
                and normalise_answer(answer) == normalise_answer(mention.answer) != ""
            ):
                places = [{"text": mention.answer, "answer_start": start}]
                kept[number].append({"question": question, "answers": places})

        counts = Counter(number for number, *_ in marked)
        yield from (
            _line(title, text, kept[number], counts[number])
            for number, (title, text, _) in enumerate(part)
        )


def _some_mentions(find: FindMentions, each: int, seed: int) -> FindMentions:
    """Return a function that finds at most `each` of the mentions, always the same ones."""

    def mentions(text: str) -> list[tuple[int, int]]:
        # A repeated name counts once.
        by_text = {text[start:end]: (start, end) for start, end in reversed(find(text))}
        spans = sorted(by_text.values())
        return sorted(random.Random(f"{seed} {text}").sample(spans, min(each, len(spans))))

    return mentions


# Slot queries from triples


def _stating(
    corpus: str, golds: Sequence[Gold], options: AugmentOptions, device: str
) -> Iterator[Paragraph]:
    """Yield the paragraphs of a corpus, or those found in a knowledge base, with the triples that
    they state.
    """
    if is_knowledge_base(Path(corpus)):
        from kbq.kb import KnowledgeBase  # only here: it leans on training itself

        kb = KnowledgeBase.open(Path(corpus), device=device)
        return _found(kb, golds, options.depth, options.backend)
    by_page: dict[str, list[Gold]] = defaultdict(list)
    for gold in golds:
        for name in pages_of(gold) or {subject_of(gold)}:
            by_page[name].append(gold)
    return _stating_of_pages(read_corpus(corpus, options.format), by_page)


def _stating_of_pages(
    pages: Iterable[Page], golds: Mapping[str, list[Gold]]
) -> Iterator[Paragraph]:
    """Yield the paragraphs of pages with the triples that they state; `golds`: by id or title of
    their page.
    """
    for page in pages:
        of_page = [*golds.get(page.page_id, []), *golds.get(page.title, [])]
        for paragraph, questions in zip(page.paragraphs, _stated(page, of_page), strict=True):
            yield page.title, paragraph.text[paragraph.begin :], questions


def _stated(page: Page, golds: Iterable[Gold]) -> list[list[Question]]:
    """Return the questions of each paragraph of a page from the triples about it.

    A paragraph states a triple if it contains the object, as whole words. The first that also names
    the subject is taken, or else the first.
    """
    questions: list[list[Question]] = [[] for _ in page.paragraphs]
    texts = [paragraph.text[paragraph.begin :] for paragraph in page.paragraphs]
    for gold in {gold.id: gold for gold in golds}.values():
        stated = [
            (place, spans) for place, text in enumerate(texts) if (spans := _answers(gold, text))
        ]
        if stated:
            place, spans = max(
                stated, key=lambda pair: (subject_of(gold) in texts[pair[0]], -pair[0])
            )
            questions[place].append({"id": gold.id, "question": gold.input, "answers": spans})

    return questions


def _found(
    kb: "KnowledgeBase", golds: Sequence[Gold], depth: int, backend: Backend
) -> Iterator[Paragraph]:
    """Yield the `depth` best paragraphs of each query, with the query if they answer it."""
    queries = [(gold, gold.input) for gold in golds if gold.input]
    for first in range(0, len(queries), BATCH):
        part = queries[first : first + BATCH]
        results = kb.query([text for _, text in part], depth, "paragraph", backend)
        for (gold, text), hits in zip(part, results, strict=True):
            for hit in hits:
                content = hit.context[content_start(hit.context) :]
                stated = _answers(gold, content)
                question: Question = {"id": gold.id, "question": text, "answers": stated}
                questions = []
                if stated:
                    questions.append(question)
                yield hit.title, content, questions


def _answers(gold: Gold, text: str) -> list[dict[str, object]]:
    """Return all places of an answer, as whole words."""
    spans = {
        (start, start + len(answer)): answer
        for answer in sorted(gold.answers)
        for start in whole_words(text, answer)
    }
    return [{"text": answer, "answer_start": start} for (start, _), answer in sorted(spans.items())]


# Hard negatives


def _base_with_words(corpus: str, device: str) -> "KnowledgeBase":
    """Open the knowledge base that negatives are looked for in. Raises TrainingError if `corpus` is
    none, or knows no words.
    """
    from kbq.kb import KnowledgeBase  # only here: it leans on training itself

    if not is_knowledge_base(Path(corpus)):
        raise TrainingError(
            f"negatives are looked for in a knowledge base, {corpus} is not one: make one with "
            "`kbq build`"
        )

    kb = KnowledgeBase.open(Path(corpus), device=device)
    if not kb.searcher.words.bm25:
        raise TrainingError(
            f"{corpus} has no index of words: add one with `kbq index bm25 {corpus}`"
        )

    return kb


def _mined(kb: "KnowledgeBase", passage: Passage, kind: Negatives) -> Line:
    """Return a passage with its queries, each with a hard negative if there is one."""
    questions: list[Question] = []
    for query in passage.queries:
        answers = [
            {"text": passage.text[start:end], "answer_start": start} for start, end in query.places
        ]
        negative = _negative(kb, passage, query, kind)
        found = [] if negative is None else [negative]
        known = [one._asdict() | {"same_phrase": True} for one in query.negatives]  # judged already
        more: Question = {"negatives": found + known} if found or known else {}
        questions.append({"id": query.id, "question": query.text, "answers": answers, **more})
    line = _line(passage.title, passage.text, questions, len(questions))
    return line | {"group": passage.group}


def _negative(
    kb: "KnowledgeBase", passage: Passage, query: TrainingQuery, kind: Negatives
) -> Question | None:
    """Find the first other paragraph that lacks the answers (bm25), or that holds the first one
    (phrase).
    """
    if kind == "bm25":
        asked = query.text
    else:
        asked = query.answers[0]
    for hit in kb.query(asked, NEAR, "paragraph", "bm25"):
        text = hit.context[content_start(hit.context) :]
        if normalise_answer(text) == normalise_answer(passage.text):
            continue
        holds = query.is_answered_in(text)
        if holds == (kind == "phrase"):
            negative: Question = {"title": hit.title, "context": text}
            if holds:
                negative["same_phrase"] = True
            return negative
    return None
