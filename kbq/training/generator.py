"""Generator: it reads an answer marked in its passage and writes a question. `kbq train generator`, `kbq augment`.

Encoder and decoder start from the same BERT-like encoder, the decoder's attention to the encoder's states at random.
Source: arXiv 1907.12461 (BERT2BERT); arXiv 2012.12624, section 4.1 (what the questions are for).
"""

import dataclasses
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from kbq.errors import ModelError, TrainingError
from kbq.model.backbone import hugging_face, load_tokenizer, readable_checkpoint, reading, save_checkpoint
from kbq.model.devices import autocast, choose_device, pad
from kbq.model.model_folder import refuse_damage
from kbq.model.windows import Window
from kbq.training.batches import PassageRun, PreparedPassage
from kbq.training.engine import StepReport
from kbq.training.examples import Files, Passage, Repairs, read_examples, set_aside
from kbq.training.output_folder import (
    example_digests,
    initial_checkpoint,
    output_folder,
    training_facts,
    write_facts,
)
from kbq.training.settings import GeneratorSettings

PROMPT = "generate question: {before}<hl> {answer} <hl>{after}"  # most published checkpoints were trained with it
AROUND = 700  # characters on each side of the answer, where the checkpoint does not say
AROUND_NEW = 200  # the same, for new generators: the sentences near it
MAX_PROMPT = 512  # tokens of a prompt, where the checkpoint sets no limit
LONGEST = 48  # tokens of a question


@dataclass(frozen=True, slots=True)
class Marked:
    """An answer, and the text before and after it."""

    before: str
    answer: str
    after: str
    title: str = ""


class Generator:
    """Writes questions, always the most likely one."""

    def __init__(self, network: Any, tokenizer: Any, prompt: str = PROMPT, beams: int = 1) -> None:
        self.network = network
        self.tokenizer = tokenizer
        self.prompt = prompt
        self.beams = beams
        self.around = int(getattr(network.config, "around", AROUND))
        encoder = getattr(network.config, "encoder", network.config)
        self.length = int(getattr(encoder, "max_position_embeddings", MAX_PROMPT))

    @classmethod
    def open(cls, source: str, prompt: str = PROMPT, beams: int = 1, device: str = "auto") -> Self:
        """Open a checkpoint: hub name or folder.

        Args:
            prompt: what it reads, with {answer}, and any of {before}, {after}, {title}.

        Raises:
            ModelError: there is no such checkpoint.
            TrainingError: the prompt has no {answer}, or another name.
        """
        try:
            filled = prompt.format(before="", answer="the answer", after="", title="")
        except (KeyError, IndexError, ValueError) as error:
            raise TrainingError(
                f"--prompt {prompt!r} has {error}: write {{before}}, {{answer}}, {{after}}, {{title}}"
            ) from None
        if "the answer" not in filled:
            raise TrainingError(f"--prompt {prompt!r} does not hold {{answer}}")
        refuse_damage(Path(source))
        library = hugging_face()
        with reading(source, "is not a sequence-to-sequence checkpoint that transformers can read"):
            network, facts = library.AutoModelForSeq2SeqLM.from_pretrained(
                source, trust_remote_code=False, weights_only=True, output_loading_info=True
            )
            tokenizer = library.AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        if facts["missing_keys"]:
            raise ModelError(f"{source} lacks weights, the first is {min(facts['missing_keys'])}: fetch it again")
        return cls(network.eval().to(choose_device(device)), tokenizer, prompt, beams)

    def save(self, folder: Path) -> None:
        """Write an ordinary Hugging Face checkpoint."""
        save_checkpoint(self.network, self.tokenizer, folder)

    @torch.inference_mode()
    def questions(self, marked: Sequence[Marked]) -> list[str]:
        """Write a question for each answer, in one batch."""
        if not marked:
            return []
        inputs = self.tokenizer.pad({"input_ids": self.prompts(marked)}, return_tensors="pt")
        with autocast(self.network.device):
            generated = self.network.generate(
                **inputs.to(self.network.device), max_new_tokens=LONGEST, num_beams=self.beams, do_sample=False
            )
        return [" ".join(text.split()) for text in self.tokenizer.batch_decode(generated, skip_special_tokens=True)]

    def prompts(self, marked: Sequence[Marked]) -> list[list[int]]:
        """Return the token ids that the network reads for each answer."""
        if not marked:
            return []
        texts = [self._read(mention) for mention in marked]
        ids: list[list[int]] = self.tokenizer(texts, truncation=True, max_length=self.length)["input_ids"]
        return ids

    def _read(self, mention: Marked) -> str:
        before, after = mention.before, mention.after
        if len(before) > self.around:  # a word that is cut is left out
            before = before[-self.around :].partition(" ")[2]
        if len(after) > self.around:
            after = after[: self.around].rpartition(" ")[0]
        return self.prompt.format(before=before, answer=mention.answer, after=after, title=mention.title)


NO_LABEL = -100  # a label that the loss ignores
AT_A_TIME = 64  # questions scored together


@dataclass(frozen=True, slots=True)
class GeneratorOutcome:
    """The result of training, also written into `training.json`."""

    passages: int
    queries: int
    repairs: Repairs
    too_long: int  # questions left out
    steps: int
    dev_queries: int
    perplexity: float  # of the dev questions, per word piece


class GeneratorRun(PassageRun):
    """Trains a generator."""

    weights = {"question": 1.0}  # noqa: RUF012 - never changed

    def __init__(self, generator: Generator, examples: Sequence[PreparedPassage], settings: GeneratorSettings) -> None:
        self.generator, self.examples = generator, examples
        super().__init__([generator.network], examples, settings)

    def losses(self, members: Sequence[int]) -> tuple[dict[str, Tensor], int]:
        """Return the cross entropy of each question's pieces, averaged over them and over the questions."""
        examples = [self.examples[index] for index in members]
        entropies, size = _entropies(self.generator, examples)
        pieces = torch.tensor([len(example.queries[0]) for example in examples], device=entropies.device)
        return {"question": (entropies / pieces).mean()}, size


def _entropies(generator: Generator, examples: Sequence[PreparedPassage]) -> tuple[Tensor, int]:
    """Return the cross entropy of each question, summed over its pieces, shape (questions,), and the size in tokens."""
    network, padding = generator.network, generator.tokenizer.pad_token_id
    ids = pad([example.windows[0].ids for example in examples], padding, network.device)
    labels = pad([list(example.queries[0]) for example in examples], NO_LABEL, network.device)
    with autocast(network.device), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # transformers warns everyone of a change made long ago
        logits = network(input_ids=ids, attention_mask=(ids != padding).long(), labels=labels).logits
    losses = cross_entropy(logits.float().mT, labels, ignore_index=NO_LABEL, reduction="none")
    return losses.sum(dim=1), ids.numel() + labels.numel()


def train_generator(
    examples: Files,
    out: str | Path,
    init: str | Path,
    *,
    dev: str | Path | None = None,
    settings: GeneratorSettings | None = None,
    device: str = "auto",
    command: str = "",
    on_step: Callable[[StepReport], None] = lambda step: None,
) -> GeneratorOutcome:
    """Train and score a generator, and save it in a new folder. A killed run resumes from `OUT.partial/checkpoint.pt`.

    Args:
        init: a BERT-like encoder, a kbq model or a sequence-to-sequence checkpoint: hub name or folder.
        dev: examples to score on; without them a twentieth of the passages is set aside.
        command: kept in `training.json`.

    Raises:
        TrainingError: see `train_encoders`.
        ModelError: `init` is missing, or neither a BERT-like encoder nor a sequence-to-sequence checkpoint.
    """
    settings = settings or GeneratorSettings()
    with output_folder(Path(out)) as folder:
        digests = example_digests(examples)
        torch.manual_seed(settings.seed)
        generator = generator_to_train(initial_checkpoint(init), device)
        passages, repairs = read_examples(examples)
        passages, dev_passages = set_aside(passages, dev, settings.seed)
        asked, dev_asked = asked_answers(generator, passages), asked_answers(generator, dev_passages)
        if not asked or not dev_asked:
            raise TrainingError(
                f"no question of the {'dev' if asked else 'training'} passages is short enough: "
                f"at most {LONGEST} word pieces can be learned"
            )
        too_long = sum(len(passage.queries) for passage in passages) - len(asked)
        run = GeneratorRun(generator, asked, settings)
        run.run(folder / "checkpoint.pt", on_step)
        score = round(perplexity(generator, dev_asked), 2)
        outcome = GeneratorOutcome(len(passages), len(asked), repairs, too_long, run.steps, len(dev_asked), score)
        generator.save(folder / "model")
        facts = training_facts(command, init, digests, settings, outcome=dataclasses.asdict(outcome))
        write_facts(folder / "model", facts)
    return outcome


def generator_to_train(checkpoint: str, device: str = "auto") -> Generator:
    """Open a sequence-to-sequence checkpoint, or make a new generator of any other.

    Raises ModelError if there is no such checkpoint, or it cannot become a generator.
    """
    try:
        config = hugging_face().AutoConfig.from_pretrained(checkpoint, trust_remote_code=False)
        is_generator = config.is_encoder_decoder
    except (OSError, ValueError, KeyError):
        is_generator = False  # the error is reported when the checkpoint is read
    return Generator.open(checkpoint, device=device) if is_generator else new_generator(checkpoint, device)


def new_generator(checkpoint: str, device: str = "auto") -> Generator:
    """Make an untrained generator from any BERT-like encoder; the encoder's word embeddings stay frozen.

    Raises ModelError if there is no such checkpoint, or it cannot become a decoder.
    """
    tokenizer = load_tokenizer(checkpoint)
    with reading(checkpoint, "cannot become a generator"), readable_checkpoint(checkpoint) as place:
        network = hugging_face().EncoderDecoderModel.from_encoder_decoder_pretrained(
            place, place, encoder_trust_remote_code=False, decoder_trust_remote_code=False
        )
    marks: dict[str, Any] = {
        "decoder_start_token_id": tokenizer.cls_token_id,
        "eos_token_id": tokenizer.sep_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    network.config.update(marks | {"around": AROUND_NEW})
    network.generation_config = hugging_face().GenerationConfig(**marks)
    network.get_input_embeddings().weight.requires_grad_(False)
    return Generator(network.to(choose_device(device)), tokenizer)


def asked_answers(generator: Generator, passages: Sequence[Passage]) -> list[PreparedPassage]:
    """Make each question, with the mark that ends it, the one query of a window in which its first answer is marked.

    Questions that are too long are left out.
    """
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
    asked = []
    for number, (ids, question) in enumerate(zip(prompts, question_ids, strict=True)):
        if 0 < len(question) < LONGEST:
            window = Window(ids, [], 0, len(ids), 0)
            asked.append(PreparedPassage((window,), len(ids), ((*question, end_mark),), (), (), str(number)))
    return asked


@torch.inference_mode()
def perplexity(generator: Generator, examples: Sequence[PreparedPassage]) -> float:
    """Return the perplexity of the questions, per word piece."""
    total, pieces = 0.0, 0
    for first in range(0, len(examples), AT_A_TIME):
        part = examples[first : first + AT_A_TIME]
        total += float(_entropies(generator, part)[0].sum())
        pieces += sum(len(example.queries[0]) for example in part)
    return math.exp(total / pieces)
