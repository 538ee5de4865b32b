"""Generator: a marked answer in its context becomes a question. Any Hugging Face sequence-to-sequence checkpoint."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError

from kbq.encoding.backbone import hugging_face
from kbq.encoding.devices import autocast, choose_device
from kbq.errors import ModelError, TrainingError, first_line
from kbq.system.files import writing_to

PROMPT = "generate question: {before}<hl> {answer} <hl>{after}"  # what most published checkpoints were trained with
AROUND = 700  # characters on each side of the answer, where the checkpoint does not say
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
        """A checkpoint: hub name or folder.

        Args:
            prompt: what it reads, with {answer}, and any of {before}, {after}, {title}.

        Raises:
            ModelError: there is no such checkpoint.
            TrainingError: the prompt does not hold the answer, or names something else.
        """
        try:
            filled = prompt.format(before="", answer="the answer", after="", title="")
        except (KeyError, IndexError, ValueError) as error:
            raise TrainingError(
                f"--prompt {prompt!r} has {error}: write {{before}}, {{answer}}, {{after}}, {{title}}"
            ) from None
        if "the answer" not in filled:
            raise TrainingError(f"--prompt {prompt!r} does not hold {{answer}}")
        try:
            network, facts = hugging_face().AutoModelForSeq2SeqLM.from_pretrained(source, output_loading_info=True)
            tokenizer = hugging_face().AutoTokenizer.from_pretrained(source)
        except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
            raise ModelError(
                f"{source} is no sequence-to-sequence checkpoint that transformers can read: {first_line(error)}"
            ) from None
        if facts["missing_keys"]:
            raise ModelError(f"{source} lacks weights, the first is {min(facts['missing_keys'])}: fetch it again")
        return cls(network.eval().to(choose_device(device)), tokenizer, prompt, beams)

    def save(self, folder: Path) -> None:
        """Write an ordinary Hugging Face checkpoint."""
        with writing_to(folder, ModelError, also=(SafetensorError,)):
            self.network.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)

    @torch.inference_mode()
    def questions(self, marked: Sequence[Marked]) -> list[str]:
        """A question for each answer, in one batch."""
        if not marked:
            return []
        inputs = self.tokenizer.pad({"input_ids": self.prompts(marked)}, return_tensors="pt")
        with autocast(self.network.device):
            generated = self.network.generate(
                **inputs.to(self.network.device), max_new_tokens=LONGEST, num_beams=self.beams, do_sample=False
            )
        return [" ".join(text.split()) for text in self.tokenizer.batch_decode(generated, skip_special_tokens=True)]

    def prompts(self, marked: Sequence[Marked]) -> list[list[int]]:
        """What the network reads for each answer, as token ids."""
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
