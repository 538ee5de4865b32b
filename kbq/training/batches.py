"""Batches: reading-comprehension files become batches of passages with queries.

Passages of one group stay together as near-by negatives. All questions of a passage are in one
batch, so that it is encoded once.

Formats: SQuAD JSON, Natural Questions with QED annotations (JSON lines), MRQA (.jsonl.gz), and
lines of a passage each:
`{"title", "context", "group", "questions": [{"question", "answers": [{"text", "answer_start"}]}]}`;
`group` is
optional and names the article or relation that near-by negatives share. An answer may be a text
alone, and answers may be `{"text": [...], "answer_start": [...]}`, as in data sets of the Hugging
Face hub. A question may have `negatives`, `[{"title", "context"}]`: passages that do not answer it,
`"same_phrase": true` if one holds the answer's text all the same. DPR's files are read, too; their
`hard_negative_ctxs` are such passages.
"""

import hashlib
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from kbq.array_types import Rows
from kbq.errors import QueryError, TrainingError
from kbq.model.devices import padded
from kbq.model.model import Model, window_tensors
from kbq.model.model_folder import fingerprint
from kbq.model.queries import QueryTokenizer
from kbq.model.tokenizer import Window, WindowShape, token_span, tokenize, windows
from kbq.reading.reader import Reader
from kbq.storage.lines import Line, parse_json_lines, read_lines, whole_text
from kbq.storage.records import parsed_json
from kbq.text.normal_forms import clean_text
from kbq.text.whole_words import whole_words
from kbq.training.engine import SEEDS, Run, best_round
from kbq.training.settings import RunSettings

SQUAD = re.compile(r'^\s*\{\s*"data"\s*:|"data"\s*:\s*\[')  # the key of its articles
Files = str | Path | Sequence[str | Path]  # one or several

SCORED = 10  # scores of dev data in a run, at most, beside that before training
TOGETHER = 4  # passages of one group and of similar length that stay in one batch


class Negative(NamedTuple):
    """A passage that does not answer a query, though it looks as if it did."""

    title: str
    context: str


@dataclass(frozen=True, slots=True)
class TrainingQuery:
    """A query and its answers."""

    id: str
    text: str
    # Characters [start, end) of each answer in the passage, at least one.
    places: tuple[tuple[int, int], ...]
    answers: tuple[str, ...]
    negatives: tuple[Negative, ...] = ()
    # Every answer of the file, also those not in the passage.
    aliases: tuple[str, ...] = field(default=(), compare=False)

    def is_answered_in(self, text: str) -> bool:
        """Whether a text holds an answer, perhaps in other capitals."""
        return holds_any(text, (*self.answers, *self.aliases))


def holds_any(text: str, answers: Iterable[str]) -> bool:
    """Whether a text holds an answer as whole words, in any capitals."""
    return any(whole_words(text, one, in_any_case=True) for one in answers if one.strip())


@dataclass(frozen=True, slots=True)
class Passage:
    """A paragraph with the queries that it answers."""

    title: str
    text: str
    queries: tuple[TrainingQuery, ...]
    group: str


def readable(
    passages: Sequence[Passage], query_tokenizer: QueryTokenizer
) -> list[tuple[int, TrainingQuery]]:
    """Return the queries that an encoder can read, each with the number of its passage."""
    return [
        (number, query)
        for number, passage in enumerate(passages)
        for query in passage.queries
        if query_tokenizer.accepts(query.text)
    ]


@dataclass(frozen=True, slots=True)
class Repairs:
    """Counts of answers that are where the file says, elsewhere in the passage, or not in it."""

    right: int = 0
    moved: int = 0
    lost: int = 0
    # Left out: the file calls the place a guess, or names none and the text occurs several times.
    doubtful: int = 0
    placed: int = 0  # answers at the place of the text, as the file names none
    answering: int = 0  # negatives that hold an answer: left out


def as_paths(files: Files) -> list[Path]:
    if isinstance(files, str | Path):
        return [Path(files)]
    return [Path(file) for file in files]


def read_examples(files: Files, doubtful: bool = False) -> tuple[list[Passage], Repairs]:
    """Read the passages of all files. Raises TrainingError if a format is unknown, or no passage
    has a query.

    An answer that is not at its place moves to the nearest occurrence of its text, or is left out
    without one. An answer without a place gets the place of its text, if that occurs once.
    `doubtful`: keep answers whose place the file marks as `start_inferred`, or does not name.
    """
    passages: list[Passage] = []
    repairs = Counter[str]()
    paths = as_paths(files)
    for path in paths:
        try:
            for title, context, group, questions in _raw_passages(path):
                text = clean_text(context)
                queries = [
                    _query(question, answers, text, doubtful, repairs)
                    for question, answers in questions
                ]
                answered = tuple(query for query in queries if query)
                if answered:
                    passages.append(Passage(clean_text(title), text, answered, group))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise TrainingError(
                f"{path} is neither SQuAD JSON, QED, MRQA, DPR nor JSON lines of passages with "
                f"questions: {type(error).__name__} {error}"
            ) from None

    if not passages:
        raise TrainingError(
            f"{', '.join(map(str, paths))}: no passage has a question with an answer in it"
        )

    return passages, Repairs(**repairs)


Placed = tuple[str, int | None]  # an answer, and where it begins, if the file says so
RawQuestion = tuple[dict[str, Any], list[Placed]]
RawPassage = tuple[str, str, str, list[RawQuestion]]  # title, text, group, questions


def set_aside(
    passages: list[Passage], dev: str | Path | None, seed: int
) -> tuple[list[Passage], list[Passage]]:
    """Return passages to train on and passages to score on: the dev file's, or a twentieth that is
    not trained on.
    """
    if dev is not None:
        return passages, read_examples(dev, doubtful=True)[0]
    shuffled = random.Random(seed).sample(passages, len(passages))
    texts = {passage.text for passage in shuffled[: max(1, len(passages) // 20)]}
    rest = [passage for passage in shuffled if passage.text not in texts]
    if not rest:
        raise TrainingError(
            "one passage is not enough to train and to score: give more, or a --dev file"
        )
    return rest, [passage for passage in shuffled if passage.text in texts]


def _raw_passages(path: Path) -> Iterator[RawPassage]:
    """Yield the passages of a file in any of the formats that have answers in them."""
    source = str(path)
    lines = read_lines(source, TrainingError)
    first = next((line for line in lines if line[1].strip()), (0, ""))
    lines = chain([first], lines)
    if first[1].lstrip().startswith("["):
        yield from map(_dpr, parsed_json(whole_text(lines, source, TrainingError, "\n")))
        return
    if first[1].strip() == "{" or SQUAD.search(first[1][:200]):
        yield from _squad(parsed_json(whole_text(lines, source, TrainingError, "\n")))
        return

    # Lines with the same title and text are one passage.
    merged: dict[tuple[str, str], RawPassage] = {}
    for title, text, group, questions in _lines(lines, source):
        merged.setdefault((title, text), (title, text, group, []))[3].extend(questions)
    yield from merged.values()


def _lines(lines: Iterable[Line], source: str) -> Iterator[RawPassage]:
    for number, fields in parse_json_lines(lines, source, TrainingError):
        try:
            if "header" not in fields:  # MRQA's files have one
                yield _passage_of(fields)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            what = (
                f"{error} is missing"
                if isinstance(error, KeyError)
                else f"is not such a passage ({error})"
            )
            raise TrainingError(
                f"{source}:{number}: {what}, there are {', '.join(fields)}: write "
                '{"title", "context", "questions": [{"question", "answers": [{"text", "answer_start"}]}]}'
            ) from None


def _squad(dump: Any) -> Iterator[RawPassage]:
    for article in dump["data"]:
        title = article.get("title", "").replace("_", " ")
        for paragraph in article["paragraphs"]:
            yield title, paragraph["context"], title, _with_answers(paragraph["qas"])


def _qed(line: Any) -> RawPassage:
    answers: list[Placed] = [
        (line["paragraph_text"][start:end], start) for start, end in line["answer_spans"]
    ]
    question = {"id": str(line["example_id"]), "question": line["question_text"]}
    return line["title_text"], line["paragraph_text"], line["title_text"], [(question, answers)]


def _passage_of(line: Any) -> RawPassage:
    return (
        _qed(line) if "paragraph_text" in line else _mrqa(line) if "qas" in line else _plain(line)
    )


def _mrqa(line: Any) -> RawPassage:
    context = line["context"]
    questions = list[RawQuestion]()
    for question in line["qas"]:
        spans = [span for answer in question["detected_answers"] for span in answer["char_spans"]]
        placed = [(clean_text(context[first : last + 1]), first) for first, last in spans]
        questions.append(({"id": question["qid"], "question": question["question"]}, placed))
    return "", context, "", questions


def _dpr(record: Any) -> RawPassage:
    """Read a record of DPR's files: the first positive passage is the one that answers the
    question.
    """
    if not record["positive_ctxs"]:
        raise ValueError(f"the question {record['question']!r:.60} has no positive passage")
    passage = record["positive_ctxs"][0]
    return passage["title"], passage["text"], passage["title"], _with_answers([record])


def _plain(line: Any) -> RawPassage:
    title = line.get("title", "")
    return (
        title,
        line["context"],
        line.get("group", title),
        _with_answers(line.get("questions", [line])),
    )


def _with_answers(questions: Any) -> list[RawQuestion]:
    return [
        (question | {"question": question["question"]}, _placed(question["answers"]))
        for question in questions
    ]


def _placed(answers: Any) -> list[Placed]:
    if isinstance(answers, dict):
        texts = answers["text"]
        starts = answers.get("answer_start")
        pairs = list(zip(texts, starts or [None] * len(texts), strict=True))
    else:
        pairs = [
            (a, None) if isinstance(a, str) else (a["text"], a.get("answer_start")) for a in answers
        ]
    return [(clean_text(text), None if start is None else int(start)) for text, start in pairs]


def _query(
    question: dict[str, Any],
    expected_answers: Sequence[Placed],
    text: str,
    doubtful: bool,
    repairs: Counter[str],
) -> TrainingQuery | None:
    """Return the query with the answers that are in the text, or None if there is none; count the
    `repairs`.
    """
    if question.get("start_inferred") and not doubtful:
        repairs["doubtful"] += 1
        return None

    repairs["lost"] += not expected_answers  # none is stated, as in SQuAD 2.0
    places: dict[tuple[int, int], None] = {}  # each once
    answers = []
    for answer, expected in expected_answers:
        occurrences = []
        if expected is None and answer.strip():
            occurrences = whole_words(text, answer)
        start = (
            next(iter(occurrences), None) if expected is None else _place(text, answer, expected)
        )
        if start is None or (len(occurrences) > 1 and not doubtful):
            if start is None:
                repairs["lost"] += 1
            else:
                repairs["doubtful"] += 1
            continue
        repairs[_repair(start, expected)] += 1
        answers.append(answer)
        places[start, start + len(answer)] = None

    if not places:
        return None
    query_text = clean_text(question["question"])
    aliases = tuple(answer for answer, _ in expected_answers)
    negatives = tuple(_negatives(question, aliases, repairs))

    return TrainingQuery(
        str(question.get("id", "")), query_text, tuple(places), tuple(answers), negatives, aliases
    )


def _repair(start: int, expected: int | None) -> str:
    """Return what was done to the place of an answer, as it is counted."""
    if expected is None:
        return "placed"
    if start == expected:
        return "right"
    return "moved"


def _negatives(
    question: dict[str, Any], answers: Sequence[str], repairs: Counter[str]
) -> Iterator[Negative]:
    """Yield the hard negatives of a question; those that hold an answer without saying so are left
    out.
    """
    for context in question.get("negatives", question.get("hard_negative_ctxs", ())):
        if not isinstance(context, dict) or not {"context", "text"} & set(context):
            raise ValueError(
                f"the question {question['question']!r:.60} has a negative that is no passage: "
                'write {"title", "context"}'
            )
        title = clean_text(context.get("title", ""))
        if "context" in context:
            text = clean_text(context["context"])
        else:
            text = clean_text(context["text"])
        if not context.get("same_phrase") and holds_any(text, answers):
            repairs["answering"] += 1
        else:
            yield Negative(title, text)


def _place(text: str, answer: str, expected: int) -> int | None:
    """Return the occurrence of `answer` nearest to the expected place."""
    if not answer.strip():
        return None
    if expected >= 0 and text.startswith(answer, expected):
        return expected
    before = text.rfind(answer, 0, max(expected, 0) + len(answer))
    after = text.find(answer, max(expected, 0))
    places = [start for start in (before, after) if start >= 0]
    if places:
        return min(places, key=lambda start: abs(start - expected))
    return None


class ReadPassage(Protocol):
    """The parts of a passage that `batches` needs."""

    @property
    def lengths(self) -> Sequence[int]: ...  # tokens of each window that is encoded with it
    @property
    def queries(self) -> Sequence[object]: ...
    @property
    def tokens(self) -> int: ...
    @property
    def group(self) -> str: ...


@dataclass(frozen=True, slots=True)
class PreparedPassage:
    """A passage as token ids."""

    windows: tuple[Window, ...]
    tokens: int  # tokens of all its windows
    queries: tuple[tuple[int, ...], ...]
    # A number for each query's answer string: equal strings, equal numbers.
    answers: tuple[int, ...]
    golds: tuple[tuple[tuple[int, int], ...], ...]  # first and last tokens of each query's answers
    group: str
    # windows, each with its query's number.
    negatives: tuple[tuple[int, Window], ...] = field(default=(), repr=False)

    @property
    def lengths(self) -> list[int]:
        """Tokens of each of its windows and of those of its hard negatives."""
        return [len(window.ids) for window in (*self.windows, *(one for _, one in self.negatives))]

    def with_query_alone(self, number: int) -> "PreparedPassage":
        """Return the passage with one of its queries."""
        place = slice(number, number + 1)
        negatives = tuple((0, window) for query, window in self.negatives if query == number)
        return replace(
            self,
            queries=self.queries[place],
            answers=self.answers[place],
            golds=self.golds[place],
            negatives=negatives,
        )

    @property
    def text(self) -> list[int]:
        """The word pieces of its paragraph, without repeating the overlaps of windows."""
        return [
            id
            for window in self.windows
            for id in window.ids[window.first : window.first + window.count]
        ]


@dataclass(frozen=True, slots=True)
class Batch:
    """Tensors of one step. `tokens` = windows × longest window, flattened."""

    windows: tuple[Tensor, Tensor, Tensor | None]  # ids, mask, segments. Shapes: (windows, longest)
    queries: tuple[Tensor, Tensor]  # ids, mask. Shapes: (queries, longest)
    # Passage that owns a token; -1: none (title, padding, overlap). Shape: (tokens,).
    passage_of_token: Tensor
    passage_of_query: Tensor  # Shape: (queries,)
    answer_of_query: Tensor  # Shape: (queries,)
    gold_starts: Tensor  # Shape: (queries, tokens), bool
    gold_ends: Tensor
    tokens_of: tuple[Rows, ...]  # places of each passage's tokens among all `tokens`, each once
    query_of_token: Tensor  # query whose hard negative has the token; -1: none. Shape: (tokens,)

    @property
    def size(self) -> int:
        """Tokens of all windows and queries, with padding."""
        return self.windows[0].numel() + self.queries[0].numel()


def prepare(
    query_tokenizer: QueryTokenizer,
    shape: WindowShape,
    passages: Sequence[Passage],
    max_queries: int,
) -> tuple[list[PreparedPassage], tuple[int, int]]:
    """Tokenize all passages; of a passage with more than `max_queries` queries the first ones stay.

    Also return how many queries the encoder cannot read, and how many were beyond `max_queries`.
    """
    tokenizer = query_tokenizer.tokenizer
    numbers: dict[str, int] = {}
    prepared = []
    unusable = 0
    surplus = 0

    for first in range(0, len(passages), 1000):
        part = passages[first : first + 1000]
        titles = tokenize(tokenizer, [passage.title for passage in part])
        texts = tokenize(tokenizer, [passage.text for passage in part])
        for passage, title, text in zip(part, titles, texts, strict=True):
            if not text.ids:  # nothing that could be an answer
                unusable += len(passage.queries)
                continue

            queries = list[tuple[int, ...]]()
            answers = list[int]()
            golds = list[tuple[tuple[int, int], ...]]()
            negatives: list[tuple[int, Window]] = []
            surplus += max(0, len(passage.queries) - max_queries)
            for query in passage.queries[:max_queries]:
                try:
                    ids = query_tokenizer.ids_of(query.text)
                except QueryError:
                    unusable += 1
                    continue
                negatives += (
                    (len(queries), window) for window in _first_negative(tokenizer, query, shape)
                )
                queries.append(tuple(ids))
                golds.append(tuple(token_span(text, *characters) for characters in query.places))
                answers.append(numbers.setdefault(query.answers[0].lower(), len(numbers)))

            passage_windows = tuple(windows(tokenizer, title.ids, text, shape))
            total = sum(
                len(window.ids)
                for window in (*passage_windows, *(window for _, window in negatives))
            )
            if queries:
                prepared.append(
                    PreparedPassage(
                        passage_windows,
                        total,
                        tuple(queries),
                        tuple(answers),
                        tuple(golds),
                        passage.group,
                        tuple(negatives),
                    )
                )

    return prepared, (unusable, surplus)


def _first_negative(tokenizer: Any, query: TrainingQuery, shape: WindowShape) -> Iterator[Window]:
    """Yield the windows of a query's first hard negative: one for each question, as in the paper."""
    for negative in query.negatives:
        title, text = tokenize(tokenizer, [negative.title, negative.context])
        if text.ids:
            yield from windows(tokenizer, title.ids, text, shape)
            return


def refuse_unreadable(
    prepared: Sequence[PreparedPassage],
    dev_passages: Sequence[Passage],
    query_tokenizer: QueryTokenizer,
) -> None:
    if not prepared or not readable(dev_passages, query_tokenizer):
        raise TrainingError(
            f"no query of the {'dev' if prepared else 'training'} passages is short enough: at "
            f"most {query_tokenizer.max_tokens} tokens are read"
        )


def batches(
    passages: Sequence[ReadPassage], max_tokens: int, rng: random.Random
) -> Iterator[list[int]]:
    """Yield the batches of one epoch, as indices of passages, in random order.

    With its padding, a batch has at most `max_tokens` tokens, unless it is a single long passage.
    Up to TOGETHER passages of one group stay in one batch.
    """
    groups: dict[str, list[int]] = {}
    for index, passage in enumerate(passages):
        groups.setdefault(passage.group, []).append(index)
    units: list[list[int]] = []
    for members in groups.values():
        members.sort(key=lambda i: passages[i].tokens * rng.uniform(0.85, 1.15))
        for first in range(0, len(members), TOGETHER):
            unit = members[first : first + TOGETHER]
            # Passages that do not fit into a batch together go alone.
            units += (
                [unit] if _padded(passages, unit) <= max_tokens else [[index] for index in unit]
            )

    rng.shuffle(units)
    chunk_size = max(1, 60 * max_tokens // 600)  # about 60 batches are sorted by length at a time
    epoch: list[list[int]] = []
    for first in range(0, len(units), chunk_size):
        chunk = sorted(
            units[first : first + chunk_size],
            key=lambda unit: max(max(passages[i].lengths) for i in unit),
        )
        packed: list[list[int]] = [[]]
        for unit in chunk:
            if packed[-1] and _padded(passages, [*packed[-1], *unit]) > max_tokens:
                packed.append([])
            packed[-1] += unit
        epoch += packed

    rng.shuffle(epoch)
    yield from epoch


def each_query_alone(passages: Sequence[PreparedPassage]) -> list[PreparedPassage]:
    """Return each query with its own copy of its passage, as the examples of arXiv 2012.12624 are."""
    return [
        passage.with_query_alone(number)
        for passage in passages
        for number in range(len(passage.queries))
    ]


def at_random(count: int, size: int, rng: random.Random) -> Iterator[list[int]]:
    """Yield the numbers below `count` once each, in batches of `size`, in random order."""
    order = rng.sample(range(count), count)
    yield from (order[first : first + size] for first in range(0, count, size))


def _padded(passages: Sequence[ReadPassage], members: Sequence[int]) -> int:
    """Return the tokens of a batch with its padding."""
    lengths = [length for i in members for length in passages[i].lengths]
    return max(lengths) * len(lengths)


class PassageRun(Run):
    """Trains on passages with their queries; epochs may differ in their number of batches.

    Without dev data there is a single round. With them there are up to ten, each ends with scoring,
    and the best parameters are kept.
    """

    settings: RunSettings

    def __init__(
        self,
        modules: Sequence[nn.Module],
        passages: Sequence[ReadPassage],
        settings: RunSettings,
        made_with: str = "",
        score: Callable[[], float] | None = None,
    ) -> None:
        """`made_with`: a digest of all else that decides the outcome. `score`: how good the modules
        are now on dev data; higher is better.
        """
        if not settings.epochs > 0:
            raise TrainingError(f"epochs is {settings.epochs}, must be above 0")
        self._passages = passages
        self._made_with = made_with
        self._score = score
        self.settings = settings
        per_epoch = sum(1 for _ in self.epoch(0))
        steps = max(1, math.ceil(per_epoch * settings.epochs / settings.accumulate))
        super().__init__(modules, settings, steps, settings.dropout)
        self._rounds = 1 if score is None else min(SCORED, steps)

    def epoch(self, number: int) -> Iterator[list[int]]:
        """Yield the batches of an epoch, as indices of passages."""
        return batches(self._passages, self.settings.batch_tokens, self.epoch_rng(number))

    def epoch_rng(self, number: int) -> random.Random:
        return random.Random(SEEDS * self.settings.seed + number)

    def batches(self) -> Iterator[Sequence[int]]:
        """Yield the batches of one epoch after the other, as far as they belong to this round."""
        in_order = (members for number in count() for members in self.epoch(number))
        end = self._steps_of_rounds(max(1, len(self.scores)))
        size = self.settings.accumulate
        return islice(in_order, self.begun * size, end * size)

    def _steps_of_rounds(self, rounds: int) -> int:
        return self.steps * rounds // self._rounds

    @property
    def begun(self) -> int:
        return self._steps_of_rounds(max(0, len(self.scores) - 1))

    @property
    def is_finished(self) -> bool:
        """Whether all steps are done and, with dev data, scored."""
        is_scored = self._score is None or len(self.scores) > self._rounds
        return super().is_finished and is_scored

    @property
    def kept(self) -> int:
        """How many steps led to the parameters that are kept: without dev data, all."""
        if not self.scores:
            return self.steps
        best = best_round(self.scores)
        return self._steps_of_rounds(best)

    def between_rounds(self) -> None:
        """Score dev data, if there are any, and keep the best parameters; at the end, go back to
        them.
        """
        if self._score:
            self.keep_best(self._score())

    def query_count(self, members: Sequence[int]) -> int:
        return sum(len(self._passages[index].queries) for index in members)

    def digest(self) -> str:
        """Return a digest of initial weights, passages and `made_with`."""
        return passages_digest(
            self._passages, repr((weights_digest(self.modules), self._made_with))
        )


def weights_digest(modules: Sequence[nn.Module]) -> str:
    weights = []
    for module in modules:
        weights += [parameter.detach().cpu() for parameter in module.parameters()]
    return fingerprint({str(number): weight for number, weight in enumerate(weights)})


def passages_digest(passages: Sequence[object], more: str = "") -> str:
    """Return a digest of prepared passages and of `more`, which also decides the outcome."""
    digest = hashlib.blake2b(more.encode(), digest_size=16)
    for passage in passages:
        digest.update(repr(passage).encode())
        negatives = getattr(passage, "negatives", ())
        if negatives:
            digest.update(repr(negatives).encode())
    return digest.hexdigest()


def collate(network: Model | Reader, passages: Sequence[PreparedPassage]) -> Batch:
    """Make the tensors of one batch, on the device of the network that reads it."""
    device = network.device
    pad_id = network.tokenizer.pad_token_id
    all_windows = [window for passage in passages for window in passage.windows]
    owners = [number for number, passage in enumerate(passages) for _ in passage.windows]
    first_queries = np.cumsum([0, *(len(passage.queries) for passage in passages)])
    negatives = [
        (int(first) + query, window)
        for first, passage in zip(first_queries, passages, strict=False)
        for query, window in passage.negatives
    ]
    all_windows += [window for _, window in negatives]
    inputs = window_tensors(all_windows, pad_id, network.uses_segments, device)
    longest = inputs[0].shape[1]
    passage_of_token = np.full((len(all_windows), longest), -1)
    for row, (window, owner) in enumerate(zip(all_windows, owners, strict=False)):
        passage_of_token[row, window.first : window.first + window.count] = owner
    query_of_token = np.full_like(passage_of_token, -1)
    for row, (query, window) in enumerate(negatives, start=len(owners)):
        query_of_token[row, window.first : window.first + window.count] = query
    flat = passage_of_token.ravel()
    owned = np.flatnonzero(flat >= 0)
    tokens_of = np.split(owned, np.searchsorted(flat[owned], range(1, len(passages))))
    passage_of_query = [number for number, passage in enumerate(passages) for _ in passage.queries]
    places_of_query = (places for passage in passages for places in passage.golds)
    golds = []
    of_queries = zip(passage_of_query, places_of_query, strict=True)
    for row, (number, places) in enumerate(of_queries):
        for span in places:
            golds.append((row, *tokens_of[number][list(span)]))

    rows, *sides = (
        torch.from_numpy(np.array(golds, np.int64).reshape(-1, 3)).to(device).unbind(dim=1)
    )
    gold_starts, gold_ends = torch.zeros(
        (2, len(passage_of_query), flat.size), dtype=torch.bool, device=device
    )
    for gold, side in zip((gold_starts, gold_ends), sides, strict=True):
        gold[rows, side] = True
    queries = [list(query) for passage in passages for query in passage.queries]
    answers = [answer for passage in passages for answer in passage.answers]
    negative_tokens = torch.from_numpy(query_of_token.ravel()).to(device)
    passage_tokens = torch.from_numpy(flat).to(device)

    return Batch(
        windows=inputs,
        queries=padded(queries, pad_id, device),
        passage_of_token=passage_tokens,
        passage_of_query=torch.tensor(passage_of_query, device=device),
        answer_of_query=torch.tensor(answers, device=device),
        gold_starts=gold_starts,
        gold_ends=gold_ends,
        tokens_of=tuple(tokens_of),
        query_of_token=negative_tokens,
    )
