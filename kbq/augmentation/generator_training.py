"""Generator training: reading-comprehension files become a generator: it reads an answer in its passage and asks.

Encoder and decoder both begin as one BERT-like encoder; what the decoder asks of the encoder's states begins random.
Source: arXiv 1907.12461 (BERT2BERT); arXiv 2012.12624, section 4.1 (what the questions are for).
"""

import dataclasses
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.nn.functional import cross_entropy

from kbq.augmentation.generator import LONGEST, Generator, Marked
from kbq.encoding.backbone import hugging_face, load_tokenizer
from kbq.encoding.devices import autocast, choose_device
from kbq.encoding.padding import pad
from kbq.encoding.pretrained import readable_checkpoint
from kbq.errors import ModelError, TrainingError, first_line
from kbq.training.examples import Passage, Repairs, read_examples, set_aside
from kbq.training.run import Run, RunRequest, RunSettings, StepReport
from kbq.training.workshop import example_digests, training_facts, workshop, write_facts

AROUND = 200  # characters on each side of the answer: the sentences near it
NO_LABEL = -100  # what the loss passes over
AT_A_TIME = 64  # questions scored together


@dataclass(frozen=True, slots=True)
class GeneratorSettings(RunSettings):
    """Everything that decides the outcome besides the data."""

    epochs: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorRequest(RunRequest):
    """What a generator is trained from; `checkpoint` may be a sequence-to-sequence one, which goes on learning."""

    dev: Path | None = None  # scored at the end; without it a twentieth of the passages is set aside
    settings: GeneratorSettings = field(default_factory=GeneratorSettings)


@dataclass(frozen=True, slots=True)
class GeneratorOutcome:
    """What came of it; also written into `training.json` of the folder."""

    passages: int
    queries: int
    repairs: Repairs
    too_long: int  # questions left out
    steps: int
    dev_queries: int
    perplexity: float  # of the dev questions, per word piece


@dataclass(frozen=True, slots=True)
class AskedAnswer:
    """A marked answer and its question as token ids: a passage of one window and one query."""

    ids: tuple[int, ...]
    question: tuple[int, ...]  # with the mark that ends it
    group: str

    @property
    def windows(self) -> tuple["AskedAnswer"]:
        """Its one window: itself."""
        return (self,)

    @property
    def queries(self) -> tuple[tuple[int, ...]]:
        """Its question."""
        return (self.question,)

    @property
    def tokens(self) -> int:
        """Length of the input."""
        return len(self.ids)


class GeneratorRun(Run):
    """Trains a generator."""

    weights = {"question": 1.0}  # noqa: RUF012 - never changed

    def __init__(self, generator: Generator, asked: Sequence[AskedAnswer], settings: GeneratorSettings) -> None:
        self.generator, self.asked = generator, asked
        super().__init__([generator.network], asked, settings)

    def losses(self, members: Sequence[int]) -> tuple[dict[str, Tensor], int]:
        """Cross entropy of each question's pieces, averaged over them and over the questions."""
        entropies, size = _entropies(self.generator, [self.asked[index] for index in members])
        pieces = torch.tensor([len(self.asked[index].question) for index in members], device=entropies.device)
        return {"question": (entropies / pieces).mean()}, size


def _entropies(generator: Generator, asked: Sequence[AskedAnswer]) -> tuple[Tensor, int]:
    """The sum over each question's pieces, shape (questions,), and the size in tokens."""
    network, padding = generator.network, generator.tokenizer.pad_token_id
    ids = pad([list(one.ids) for one in asked], padding, network.device)
    labels = pad([list(one.question) for one in asked], NO_LABEL, network.device)
    with autocast(network.device), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # transformers tells everyone of a change of long ago
        logits = network(input_ids=ids, attention_mask=(ids != padding).long(), labels=labels).logits
    each = cross_entropy(logits.float().mT, labels, ignore_index=NO_LABEL, reduction="none")
    return each.sum(dim=1), ids.numel() + labels.numel()


def train_generator(
    request: GeneratorRequest, report: Callable[[StepReport], None] = lambda step: None
) -> GeneratorOutcome:
    """Train, score and save a generator. A killed run goes on from `OUT.partial/checkpoint.pt`.

    Raises:
        TrainingError: no usable example, a loss that is no number, or a checkpoint of other settings.
        ModelError: what to start from is missing, or neither a BERT-like encoder nor a sequence-to-sequence checkpoint.
    """
    settings = request.settings
    with workshop(request.out) as folder:
        digests = example_digests(request.examples)
        torch.manual_seed(settings.seed)
        generator = generator_to_train(request.checkpoint, request.device)
        passages, repairs = read_examples(request.examples)
        passages, dev = set_aside(passages, request.dev, settings.seed)
        asked, dev_asked = asked_answers(generator, passages), asked_answers(generator, dev)
        if not asked or not dev_asked:
            raise TrainingError(
                f"no question of the {'dev' if asked else 'training'} passages is short enough: "
                f"at most {LONGEST} word pieces can be learned"
            )
        too_long = sum(len(passage.queries) for passage in passages) - len(asked)
        run = GeneratorRun(generator, asked, settings)
        run.run(folder / "checkpoint.pt", report)
        score = round(perplexity(generator, dev_asked), 2)
        outcome = GeneratorOutcome(len(passages), len(asked), repairs, too_long, run.steps, len(dev_asked), score)
        generator.save(folder / "model")
        write_facts(folder / "model", training_facts(request, digests, outcome=dataclasses.asdict(outcome)))
    return outcome


def generator_to_train(checkpoint: str, device: str = "auto") -> Generator:
    """A sequence-to-sequence checkpoint goes on learning with all its weights; of any other a new generator is made.

    Raises:
        ModelError: there is no such checkpoint, or no generator can be made of it.
    """
    try:
        knows_how = hugging_face().AutoConfig.from_pretrained(checkpoint).is_encoder_decoder
    except (OSError, ValueError, KeyError):
        knows_how = False  # what is wrong is said when it is read
    return Generator.open(checkpoint, device=device) if knows_how else new_generator(checkpoint, device)


def new_generator(checkpoint: str, device: str = "auto") -> Generator:
    """An untrained generator from any BERT-like encoder; the encoder's word embeddings stay frozen.

    Raises:
        ModelError: there is no such checkpoint, or no decoder can be made of it.
    """
    tokenizer = load_tokenizer(checkpoint)
    try:
        with readable_checkpoint(checkpoint) as place:
            network = hugging_face().EncoderDecoderModel.from_encoder_decoder_pretrained(place, place)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"{checkpoint} is no checkpoint that can become a generator: {first_line(error)}") from None
    marks: dict[str, Any] = {
        "decoder_start_token_id": tokenizer.cls_token_id,
        "eos_token_id": tokenizer.sep_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    network.config.update(marks | {"around": AROUND})
    network.generation_config = hugging_face().GenerationConfig(**marks)
    network.get_input_embeddings().weight.requires_grad_(False)
    return Generator(network.to(choose_device(device)), tokenizer)


def asked_answers(generator: Generator, passages: Sequence[Passage]) -> list[AskedAnswer]:
    """Every question with its first answer marked; questions that are too long are left out."""
    marked: list[Marked] = []
    questions: list[str] = []
    for passage in passages:
        for query in passage.queries:
            start, end = query.places[0]
            marked.append(Marked(passage.text[:start], passage.text[start:end], passage.text[end:], passage.title))
            questions.append(query.text)
    prompts = generator.prompts(marked)
    written = generator.tokenizer(questions, add_special_tokens=False)["input_ids"] if questions else []
    end_mark = generator.network.config.eos_token_id
    return [
        AskedAnswer(tuple(ids), (*question, end_mark), str(number))
        for number, (ids, question) in enumerate(zip(prompts, written, strict=True))
        if 0 < len(question) < LONGEST
    ]


@torch.inference_mode()
def perplexity(generator: Generator, asked: Sequence[AskedAnswer]) -> float:
    """Perplexity of the questions, per word piece."""
    total, pieces = 0.0, 0
    for first in range(0, len(asked), AT_A_TIME):
        part = asked[first : first + AT_A_TIME]
        total += float(_entropies(generator, part)[0].sum())
        pieces += sum(len(one.question) for one in part)
    return math.exp(total / pieces)
