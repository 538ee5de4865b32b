"""Many pages: what pages cost beside their vectors, with an encoder so small that millions of tokens take minutes.

    OMP_NUM_THREADS=1 python benchmarks/many_pages.py WORK [--pages 62500]

WORK is a folder for the encoder, a random one of one layer and 16 dimensions, and for knowledge bases of so many pages
of two short paragraphs, of 4, of 16, and of 96 times as many: all pages that English Wikipedia has. Pages are random
words under names of their own, so that the vocabulary grows with them. An hour and 15 GB; Linux only.
"""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import reporting
import torch
import transformers
from measuring import arguments, cpu_seconds, run

from kbq.kb import KnowledgeBase
from kbq.model.model import Model
from kbq.model.model_folder import DEFAULT_MODEL, ModelConfig
from kbq.sample_kb import ARTICLES
from kbq.storage.files import folder_bytes

TIMES = (1, 4, 16, 96)
SYLLABLES = ("ka", "lo", "mi", "ter", "son", "ville", "berg", "an", "ro", "shi", "du", "wa", "gra", "ne", "to")
QUERIES = ("Terberg [SEP] located in", "Kalo [SEP] member of", "river city school")


def small_encoder(folder: Path) -> None:
    """Save a random encoder with the default model's tokenizer, which keeps every token."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(DEFAULT_MODEL)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=1, intermediate_size=16
    )
    torch.manual_seed(0)
    checkpoint = folder.with_name("checkpoint")
    transformers.BertModel(config).save_pretrained(checkpoint)
    tokenizer.save_pretrained(checkpoint)
    model = Model.new(str(checkpoint), ModelConfig(filter_threshold=float("-inf"), edge_threshold=float("-inf")))
    model.scale[:] = 0.02
    model.save(folder)


def write_pages(path: Path, count: int) -> None:
    """Write pages of random words of the sample's articles, and names of three to six syllables."""
    source = random.Random(0)
    words = sorted(set(ARTICLES.read_text("utf-8").split()))

    def name() -> str:
        return "".join(source.choices(SYLLABLES, k=source.randint(3, 6))).capitalize()

    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            title, place = name(), name()
            first, second = (" ".join(source.choices(words, k=size)) for size in (5, 9))
            texts = [f"{title} is {first} in {place}.", f"It {second}."]
            file.write(json.dumps({"id": str(number), "title": title, "paragraphs": texts}) + "\n")


def measured(work: Path, pages: int) -> dict[str, Any]:
    """Return what building, appending to, opening and asking a knowledge base of so many pages costs."""
    corpus, folder = work / "corpus.jsonl", work / "kb"
    write_pages(corpus, pages)
    shutil.rmtree(folder, ignore_errors=True)
    usage = run("build", corpus, folder, "--model", work / "model", "--index", "exact")
    more = work / "more.jsonl"
    more.write_text('{"id": "new", "title": "New", "text": "A page."}\n', "utf-8")
    appended = run("build", more, folder, "--append", "--index", "exact")
    kb = KnowledgeBase.open(folder, device="cpu")
    vectors = sum(shard.vectors.nbytes for shard in kb.shards)
    figures = {
        "pages": pages,
        "tokens": kb.counts.tokens,
        "shards": len(kb.shards),
        "build, CPU seconds": round(usage["CPU seconds"]),
        "peak memory, MB": usage["peak memory, MB"],
        "own, MB": usage["own, MB"],
        "append of a page, CPU seconds": appended["CPU seconds"],
        "MB without vectors": round((folder_bytes(folder) - vectors) / 1e6),
        "opening, CPU ms": round(1000 * cpu_seconds(lambda: KnowledgeBase.open(folder, device="cpu"), 3)),
        "words alone, CPU ms a query": round(
            1000 * cpu_seconds(lambda: kb.query(QUERIES, 10, "page", "bm25"), 3) / len(QUERIES), 2
        ),
    }
    shutil.rmtree(folder)
    corpus.unlink()
    return figures


def main() -> None:
    options = arguments(__doc__, work=Path, pages=62_500)
    torch.set_num_threads(1)
    options.work.mkdir(parents=True, exist_ok=True)
    small_encoder(options.work / "model")
    sizes: list[dict[str, Any]] = []
    for times in TIMES:
        sizes.append(measured(options.work, times * options.pages))
        reporting.write("many_pages", {"sizes": sizes}, [], seed=0)


if __name__ == "__main__":
    main()
