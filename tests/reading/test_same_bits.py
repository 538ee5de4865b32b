"""What is read for a query is the same to the last bit alone and in company, on every kind of CPU.

Each kind is a process of its own, as libraries decide once which instructions they use; `python -m`
runs it by hand.
"""

import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor

KINDS = {  # what limits oneDNN, ATen and MKL, and whether such a CPU multiplies 16 bits
    "AVX2": ("AVX2", "avx2", "AVX2", False),
    "AVX-512": ("AVX512_CORE", "avx512", "AVX512", False),
    "bf16": ("AVX512_CORE_BF16", "avx512", "AVX512", True),
    "AMX": ("AVX512_CORE_AMX", "avx512", "AVX512", True),
}
SAME = "queries differ in 0 logits"


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_read_is_the_same_alone_and_in_company(kind: str) -> None:
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        pytest.skip("this PyTorch has no oneDNN, whose shapes these are")
    if kind != "AVX2" and "AVX512" not in torch.backends.cpu.get_cpu_capability():
        pytest.skip(f"this CPU has no {kind}: PyTorch would end with an illegal instruction")
    onednn, aten, mkl, is_half = KINDS[kind]
    names = {
        "ONEDNN_MAX_CPU_ISA": onednn,
        "ATEN_CPU_CAPABILITY": aten,
        "MKL_ENABLE_INSTRUCTIONS": mkl,
    }
    run = subprocess.run(
        [sys.executable, __file__, "16" if is_half else "32"],
        env=os.environ | names, capture_output=True, encoding="utf-8",
    )  # fmt: skip
    assert (run.returncode, run.stdout.strip()) == (0, SAME), run.stderr


def compare(bits: int) -> None:
    """Read five queries alone, in pairs and together; write how many logits differ.

    Args:
        bits: of the numbers that are multiplied; a CPU without fast products of 16 bits computes
            them all the same.
    """
    from kbq.answers import Answer
    from kbq.model import devices
    from kbq.reading.phrase_windows import odds, read_around
    from kbq.reading.reader import Reader

    half = torch.bfloat16 if bits == 16 else torch.float32
    devices.fast_dtype = lambda device: half  # type: ignore[assignment]
    reader = Reader.open("default", "cpu")
    judge = reader.phrase_judge

    def found(query: int) -> list[Answer]:
        """As many phrases as the number of the query says, in paragraphs of different lengths."""
        phrases = []
        for page in range(1 + 2 * query):
            context = f"Title {page}\n" + "Marie Curie, a chemist, was born in Warsaw. " * (
                1 + (3 * page + query) % 7
            )
            start = context.rindex("Warsaw")
            place = (start, start + 6)
            phrases.append(
                Answer("Warsaw", 9.0 - page, str(page), f"Title {page}", 0, *place, context, place)
            )
        return phrases

    queries = [
        reader.query_tokenizer.ids_of(f"{'Marie ' * number}Curie [SEP] place of birth")
        for number in range(5)
    ]

    def read(numbers: range) -> list[list[Tensor]]:
        several = read_around(
            reader, [queries[number] for number in numbers], [found(number) for number in numbers]
        )
        return [
            [
                odds(
                    judge,
                    torch.cat([one.edges for one in each]),
                    torch.cat([one.edge_logits for one in each]),
                )
            ]
            + [one.logits.flatten() for one in each]
            for each in several
        ]

    with torch.inference_mode():
        together = read(range(5))
        differing = 0
        for size in (1, 2):
            some = [
                each
                for first in range(0, 5, size)
                for each in read(range(first, min(5, first + size)))
            ]
            for one, other in zip(some, together, strict=True):
                differing += sum(int((a != b).sum()) for a, b in zip(one, other, strict=True))
    sys.stdout.write(f"queries differ in {differing} logits\n")


if __name__ == "__main__":
    compare(int(sys.argv[1]))
