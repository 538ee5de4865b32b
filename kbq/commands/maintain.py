"""Maintain: `kbq index vectors`, `bm25` and `sparta`, and `kbq merge-kb`."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from kbq.answers import WantedKind
from kbq.commands import printing
from kbq.commands.application import Commands
from kbq.commands.options import MAINTAIN, Device, Json, Terms, TunedModel, output_path, refuse_given
from kbq.commands.terminal import note, tell

app = typer.Typer()
index = typer.Typer(
    cls=Commands, help="Build an index of vectors or of words; nothing is encoded again.", no_args_is_help=True
)
app.add_typer(index, name="index", rich_help_panel=MAINTAIN)
PublishedKb = Annotated[Path, typer.Argument(help="A knowledge base.")]


@index.command("vectors")
def index_vectors(
    context: typer.Context,
    kb: PublishedKb,
    kind: Annotated[
        WantedKind,
        typer.Option(help="Bytes a vector (dimension 384): disk 400, read from the disk; compact 80, tiny 45."),
    ] = "auto",
    recall: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of the ten best phrases that it must find.")
    ] = 0.99,
    queries: Annotated[
        str | None,
        typer.Option(help="File of queries like those to come, one a line; else slots of its own pages."),
    ] = None,
    filter: Annotated[
        float | None,
        typer.Option(help="Index only tokens with a filter logit above this; the model's own: kbq info."),
    ] = None,
    model: TunedModel = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Build an index of the vectors, which is used from now on; others stay."""
    from kbq.commands.ask import read_queries
    from kbq.commands.progress import stage_progress
    from kbq.description import index_facts
    from kbq.dump.manifest import read_manifest
    from kbq.indexing.factory import chosen_kind
    from kbq.kb import model_of
    from kbq.searching.indexes import IndexSpec, add_index

    if kind == "exact":
        refuse_given(context, "with exact search", ("recall", "queries"))
    manifest = read_manifest(kb)
    if chosen_kind(manifest, kind) == "exact":
        refuse_given(context, "with exact search", ("recall", "queries"))
    texts = tuple(text for _, text in read_queries([], queries)) if queries is not None else ()
    with stage_progress(f"indexing {kb}") as report:
        spec = IndexSpec(kind, recall, texts, filter)
        manifest = add_index(kb, model_of(kb, manifest, model, device), spec, report)
    facts = index_facts(kb, manifest, manifest.index)
    tell({"kb": str(kb), **dataclasses.asdict(facts)}, as_json, f"{kb}: {printing.index_line(facts)}")
    if facts.recall < facts.target:
        more = {"tiny": "compact, disk or exact", "compact": "disk or exact"}.get(facts.kind, "exact")
        advice = f"choose --kind {more} for that" if filter is None else "its --filter hides the others"
        note(f"all of its cells together do not find {facts.target:.2%}: {advice}")


@index.command("bm25")
def bm25(kb: PublishedKb, as_json: Json = False) -> None:
    """Index the words, for the backends bm25 and hybrid."""
    from kbq.commands.progress import stage_progress
    from kbq.words.bm25 import index_bm25

    with stage_progress(f"indexing {kb}") as report:
        size = index_bm25(kb, report)
    tell({"kb": str(kb), "bytes": size}, as_json, f"{kb}: a BM25 index of {printing.size(size)}")


@index.command("sparta")
def sparta(
    kb: PublishedKb,
    model: Annotated[Path, typer.Argument(help="A SPARTA model, made by kbq train sparta.")],
    terms: Terms = 500,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Add the word weights that a SPARTA model has learned, for the backends sparta and hybrid."""
    from kbq.commands.progress import stage_progress
    from kbq.words.sparta import index_sparta

    with stage_progress(f"indexing {kb}") as report:
        size = index_sparta(kb, model, terms, device, report)
    tell({"kb": str(kb), "bytes": size}, as_json, f"{kb}: learned impacts of {printing.size(size)}")


@app.command("merge-kb", rich_help_panel=MAINTAIN)
def merge_kb(
    out: Annotated[Path, typer.Argument(callback=output_path, help="Folder of the new knowledge base.")],
    kbs: Annotated[list[Path], typer.Argument(metavar="KB", help="Knowledge bases of the same model.")],
    as_json: Json = False,
) -> None:
    """Join knowledge bases built with the same model, by linking their files."""
    from kbq.commands.progress import stage_progress
    from kbq.dump.manifest import read_manifest
    from kbq.dump.merging import merge

    with stage_progress(f"merging {out}") as report:
        manifest = merge(out, kbs, report)
    counts = manifest.counts
    tell(
        {"kb": str(out), **counts.facts, "shards": len(manifest.shards)},
        as_json,
        f"{out}: {counts.pages:,} pages, {counts.rows:,} token vectors, in {len(manifest.shards)} shards",
    )
    if any(read_manifest(kb).bm25 for kb in kbs) and not manifest.bm25:
        note(f"not all of them have words: add these with `kbq index bm25 {out}`")
    if any(read_manifest(kb).sparta for kb in kbs):
        note(f"learned impacts stay behind, their models may differ: kbq index sparta {out} MODEL")
