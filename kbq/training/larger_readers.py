"""Larger readers: one of another shape than the model's learns to judge, and teaches the model's reader then.

Two of them learn, each from half of the queries, so that what they say of the other half is not what they have learned
by heart. Source: arXiv 1503.02531 (distillation). A folder has `reader/`, a checkpoint, and the judge beside it.
"""

import zlib
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from kbq.errors import ModelError
from kbq.model.model_folder import load_weights, named_weights, read_weights, save_tensors
from kbq.reading.network import PhraseJudge, QuestionAnswering, question_answering
from kbq.reading.reader import Reader
from kbq.storage.files import reading_problem
from kbq.storage.folders import make_folders
from kbq.training.mined_queries import MinedQuery
from kbq.training.output_folder import write_facts

CHECKPOINT, JUDGE = "reader", "judge.safetensors"


def half_of(query: MinedQuery) -> int:
    """The half of the queries that a query is in, 0 or 1: all queries about a page are in one."""
    about = "\n".join(sorted(query.pages)) or query.text
    return zlib.crc32(about.encode("utf-8", "surrogatepass")) % 2


def open_larger(folder: Path) -> tuple[QuestionAnswering, Any]:
    """The network of a larger reader, with its judge if it has one, and its tokenizer.

    Args:
        folder: a checkpoint of `kbq train reader`, or what `save_larger` wrote.

    Raises:
        ModelError: it is not a reader, or damaged.
    """
    reader = Reader.open(str(_checkpoint(folder)), "cpu")
    network = question_answering(reader.network)
    if (folder / JUDGE).is_file():
        try:
            weights = read_weights(folder / JUDGE)
        except (OSError, SafetensorError, ValueError) as error:
            raise ModelError(reading_problem(folder / JUDGE, error, "teach it again")) from None
        network.judge = PhraseJudge(network.config.hidden_size)
        load_weights(network.judge, weights, "", folder)
    return network, reader.tokenizer


def save_larger(reader: Reader, source: Path, folder: Path, facts: dict[str, Any]) -> None:
    """Write a larger reader that judges, which was opened from `source`, into a new folder."""
    network, judge = reader.reranking
    judging = named_weights(judge, "")
    network.judge = None
    checkpoint = Reader.open(str(_checkpoint(source)), "cpu")
    question_answering(checkpoint.network).load_state_dict(network.cpu().state_dict())
    make_folders(folder)
    checkpoint.save(folder / CHECKPOINT)
    save_tensors(judging, folder / JUDGE)
    write_facts(folder, facts)


def _checkpoint(folder: Path) -> Path:
    return folder / CHECKPOINT if (folder / JUDGE).is_file() else folder
