"""Tiny checkpoint: a random BERT of 2 layers that knows the characters of some files, where no real one is at hand.

    python benchmarks/tiny_checkpoint.py EXAMPLES.json … --out FOLDER

It shows that a language goes through the code, nothing else: what is measured with it says nothing about the method.
"""

import argparse
from pathlib import Path

import tokenizers
import torch
import transformers

from kbq.training.examples import read_examples

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("examples", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    passages = read_examples(options.examples, doubtful=True)[0]
    texts = [text for passage in passages for text in (passage.text, *(query.text for query in passage.queries))]
    letters = sorted({letter for text in texts for letter in text.lower() if not letter.isspace()})
    pieces = [*SPECIAL, *letters, *(f"##{letter}" for letter in letters)]
    inner = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]")
    )
    inner.normalizer = tokenizers.normalizers.BertNormalizer()
    inner.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, mask_token="[MASK]", **names)
    config = transformers.BertConfig(
        vocab_size=len(pieces),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=128,
        initializer_range=0.2,
    )
    torch.manual_seed(0)
    transformers.BertModel(config).save_pretrained(options.out)
    tokenizer.save_pretrained(options.out)


if __name__ == "__main__":
    main()
