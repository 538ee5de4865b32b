"""Generator training: reading-comprehension files become a generator, which reads an answer in its passage and asks.

Encoder and decoder both begin as one BERT-like encoder; the decoder's attention to the encoder's states begins random.
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
NO_LABEL = -100  # a label that the loss ignores
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
    """The result of training, also written into `training.json` of the folder."""

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

    def __init__(self, generator: Generator, examples: Sequence[AskedAnswer], settings: GeneratorSettings) -> None:
        self.generator, self.examples = generator, examples
        super().__init__([generator.network], examples, settings)

    def losses(self, members: Sequence[int]) -> tuple[dict[str, Tensor], int]:
        """Cross entropy of each question's pieces, averaged over them and over the questions."""
        entropies, size = _entropies(self.generator, [self.examples[index] for index in members])
        pieces = torch.tensor([len(self.examples[index].question) for index in members], device=entropies.device)
        return {"question": (entropies / pieces).mean()}, size


def _entropies(generator: Generator, examples: Sequence[AskedAnswer]) -> tuple[Tensor, int]:
    """The cross entropy of each question, summed over its pieces, shape (questions,), and the size in tokens."""
    network, padding = generator.network, generator.tokenizer.pad_token_id
    ids = pad([list(example.ids) for example in examples], padding, network.device)
    labels = pad([list(example.question) for example in examples], NO_LABEL, network.device)
    with autocast(network.device), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # transformers warns everyone of a change made long ago
        logits = network(input_ids=ids, attention_mask=(ids != padding).long(), labels=labels).logits
    losses = cross_entropy(logits.float().mT, labels, ignore_index=NO_LABEL, reduction="none")
    return losses.sum(dim=1), ids.numel() + labels.numel()


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
        examples, dev_examples = asked_answers(generator, passages), asked_answers(generator, dev)
        if not examples or not dev_examples:
            raise TrainingError(
                f"no question of the {'dev' if examples else 'training'} passages is short enough: "
                f"at most {LONGEST} word pieces can be learned"
            )
        too_long = sum(len(passage.queries) for passage in passages) - len(examples)
        run = GeneratorRun(generator, examples, settings)
        run.run(folder / "checkpoint.pt", report)
        score = round(perplexity(generator, dev_examples), 2)
        outcome = GeneratorOutcome(len(passages), len(examples), repairs, too_long, run.steps, len(dev_examples), score)
        generator.save(folder / "model")
        write_facts(folder / "model", training_facts(request, digests, outcome=dataclasses.asdict(outcome)))
    return outcome


def generator_to_train(checkpoint: str, device: str = "auto") -> Generator:
    """A sequence-to-sequence checkpoint goes on learning with all its weights; of any other a new generator is made.

    Raises:
        ModelError: there is no such checkpoint, or no generator can be made of it.
    """
    try:
        is_generator = hugging_face().AutoConfig.from_pretrained(checkpoint).is_encoder_decoder
    except (OSError, ValueError, KeyError):
        is_generator = False  # what is wrong is reported when the checkpoint is read
    return Generator.open(checkpoint, device=device) if is_generator else new_generator(checkpoint, device)


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
    question_ids = generator.tokenizer(questions, add_special_tokens=False)["input_ids"] if questions else []
    end_mark = generator.network.config.eos_token_id
    return [
        AskedAnswer(tuple(ids), (*question, end_mark), str(number))
        for number, (ids, question) in enumerate(zip(prompts, question_ids, strict=True))
        if 0 < len(question) < LONGEST
    ]


@torch.inference_mode()
def perplexity(generator: Generator, examples: Sequence[AskedAnswer]) -> float:
    """Perplexity of the questions, per word piece."""
    total, pieces = 0.0, 0
    for first in range(0, len(examples), AT_A_TIME):
        part = examples[first : first + AT_A_TIME]
        total += float(_entropies(generator, part)[0].sum())
        pieces += sum(len(example.question) for example in part)
    return math.exp(total / pieces)
