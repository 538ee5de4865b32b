"""The commands: `kbq import`, and those that ask what was imported, as they are typed."""

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import Run

WHOLE = "start/4_flat_OPQ4"


def test_a_checkpoint_and_a_dump(run: Run, official: Any) -> None:
    said = "m: a model, 2 layers, 16 dimensions, 71 word pieces\n"
    assert run("import", "checkpoint", official.checkpoint, "--out", "m") == (0, said, "")
    status, out, _ = run("import", "checkpoint", official.checkpoint, "--out", "m2", "--json")
    made = json.loads(out)
    assert (status, made["folder"], made["dim"], made["layers"], made["base"]) == (
        0,
        "m2",
        16,
        2,
        "",
    )
    status, out, errors = run(
        "import", "dump", official.dump, "kb", "--model", "m", "--device", "cpu"
    )
    assert (status, errors) == (0, "")
    assert out.startswith("kb: 5 pages, 11 paragraphs, 1,145 tokens\n1,119 token vectors, ")
    facts = json.loads(run("info", "kb", "--json")[1])
    assert (facts["pages"], facts["kept_vectors"], facts["model"]) == (
        5,
        1119,
        str(Path("m").resolve()),
    )
    assert run("query", "Paris", "--kb", "kb", "-k", 1, "--model", official.checkpoint)[0] == 0


def test_an_index_is_predicted_with_and_fills_tables(run: Run, official: Any) -> None:
    status, out, _ = run(
        "import",
        "index",
        official.dump,
        "kb",
        "--name",
        WHOLE,
        "--model",
        official.checkpoint,
        "--json",
    )
    made = json.loads(out)
    assert (status, made["index"], made["kept_vectors"], made["misfits"]) == (
        0,
        "official",
        1119,
        0,
    )
    assert (
        run("info", "kb")[1]
        .splitlines()[-1]
        .endswith("official, the codes of an imported index, 8.3 more bytes per vector, 4 probes")
    )
    Path("q.jsonl").write_text('{"id": "1", "input": "Marie Curie [SEP] place of birth"}\n')
    assert run("predict", "q.jsonl", "--task", "trex", "--kb", "kb", "--out", "p.jsonl")[0] == 0
    (predicted,) = json.loads(Path("p.jsonl").read_text())["output"]
    assert {page["wikipedia_id"] for page in predicted["provenance"]} == {
        "0",
        "10",
        "2",
        "1000",
        "1001",
    }
    Path("t.csv").write_text("subject,place\nMarie Curie,\n")
    fill = "fill", "t.csv", "--relations", "place", "--kb", "kb", "--out", "f.csv"
    status, _, errors = run(*fill)
    assert (status, "answers have no probability where the model" in errors) == (1, True)
    assert run(*fill, "--min-probability", "0")[:2] == (
        0,
        "f.csv: 1 of 1 cell of 1 row filled (100 %)\n",
    )
    status, _, errors = run("index", "vectors", "kb", "--kind", "compact")
    assert (status, "has its codes instead of vectors" in errors) == (1, True)
    status, _, errors = run("query", "Paris", "--kb", "kb", "--index", "exact")
    assert (status, "has its codes instead of vectors" in errors) == (1, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("import", "checkpoint", "nowhere", "--out", "m"),
            "error: model folder nowhere does not exist: give `default`, a folder, or a name on the "
            "hub such as owner/name\n",
        ),
        (
            ("import", "dump", "nowhere", "kb", "--model", "m"),
            "error: nowhere has no phrase dump: give the folder in",
        ),
        (
            ("import", "index", "nowhere", "kb", "--name", "x", "--model", "m"),
            "error: nowhere/x/index.faiss is missing",
        ),
    ],
)
def test_what_is_not_there(words: tuple[str, ...], message: str, run: Run) -> None:
    status, out, errors = run(*words)
    assert (status, out) == (1, "")
    assert errors.startswith(message)
    assert "Traceback" not in errors


def test_misfits_are_noted(run: Run, copied: Any) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(copied.dump / "phrase" / "0-1.hdf5", "r+") as file:
        file["0/word2char_end"][3] = 10**6
    status, out, errors = run(
        "import", "dump", copied.dump, "kb", "--model", copied.checkpoint, "--json"
    )
    assert (status, json.loads(out)["misfits"], json.loads(out)["documents_with_misfits"]) == (
        0,
        1,
        1,
    )
    first, second = errors.splitlines()
    assert first.startswith("document 0: 1 of ")
    assert second == (
        "no phrase opens or closes at 1 tokens of 1 documents, as their characters are not in one "
        "paragraph"
    )
