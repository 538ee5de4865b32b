"""Maintain: `kbq update`, `sync`, `delete`, `compact`, `verify`, `index`, `merge-kb`, `pages`,
`import`, `cluster`.
"""

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import chain, compress, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import kbq
from kbq.answers import WantedKind, counted, percent
from kbq.commands import terminal
from kbq.commands.ask import index_line
from kbq.commands.options import (
    MAINTAIN,
    Commands,
    Device,
    IndexName,
    Json,
    Kb,
    MovedModel,
    Ray,
    TunedModel,
    option_of,
    output_path,
    read_queries,
    refuse_given,
    refuse_swapped,
    takes,
)
from kbq.commands.terminal import note, tell, typed_command
from kbq.errors import ClusterError, KbqError
from kbq.maintain.options import RECALL, BuildOptions
from kbq.progress import Bar

if TYPE_CHECKING:
    from kbq.dump.manifest import Manifest
    from kbq.importing.dump import Imported

NAMED = 20  # fields in a message
SYNC = "format", "columns", "documents", "workers"  # options of a build that `kbq sync` has, too
UPDATE = (*SYNC, "skip_bad_lines")
IN_MEMORY = {"compact": 80, "tiny": 45}  # bytes per vector of a large index; see --kind
MUCH = 0.2  # share of vectors from which on compacting is suggested
app = typer.Typer()
index = typer.Typer(
    cls=Commands,
    help="Build an index of vectors or of words; nothing is encoded again.",
    no_args_is_help=True,
)
importing = typer.Typer(
    cls=Commands,
    help="Import what DensePhrases published: checkpoints, phrase dumps, indexes.",
    no_args_is_help=True,
)
cluster = typer.Typer(
    cls=Commands, help="Check the machines of a Ray cluster.", no_args_is_help=True
)
app.add_typer(index, name="index", rich_help_panel=MAINTAIN)
BUILD = BuildOptions()


@dataclass(frozen=True, slots=True)
class Update:
    """Options: a knowledge base, and the corpus that it follows."""

    kb: Kb
    corpus: Annotated[str, typer.Argument(help="A file or folder, or - for standard input.")]
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False
    model: MovedModel = None
    device: Device = "auto"
    as_json: Json = False


@app.command(rich_help_panel=MAINTAIN)
@takes(BuildOptions, *UPDATE)
@takes(Update)
def update(*, options: BuildOptions = BUILD, asked: Update) -> None:
    """Add new pages and replace changed ones, by their ids; the others are not encoded again."""
    _update(asked, "update", {name: getattr(options, name) for name in UPDATE})


@app.command(rich_help_panel=MAINTAIN)
@takes(BuildOptions, *SYNC)
@takes(Update)
def sync(*, options: BuildOptions = BUILD, asked: Update) -> None:
    """Update, and delete the pages that the corpus lacks."""
    _update(asked, "sync", {name: getattr(options, name) for name in SYNC})


def _update(asked: Update, method: Literal["update", "sync"], words: dict[str, Any]) -> None:
    """Update or sync a knowledge base, and print what changed."""
    kb = asked.kb
    dry_run = asked.dry_run
    refuse_swapped(method, kb, asked.corpus)
    before = kbq.KnowledgeBase.open(kb, asked.model, device=asked.device, lazy=True)
    with Bar(f"updating {kb}") as bar:
        words |= {"dry_run": dry_run, "report": bar.pages, "report_stage": bar.stage, "note": note}
        after = getattr(before, method)(asked.corpus, **words)

    changes = after.changes
    facts = {"kb": str(kb), "dry_run": dry_run, **asdict(changes), "bad_lines": after.bad_lines}
    would = ""
    if dry_run:
        would = "would be "
    added = f"{counted(changes.added, 'page')} {would}added"
    others = (
        f"{changes.replaced:,} replaced, {changes.deleted:,} deleted, {changes.unchanged:,} "
        "unchanged"
    )
    tell(facts | after.counts.facts, asked.as_json, f"{kb}: {changes}", f"{added}, {others}")
    _suggest_compacting(kb, after.manifest)


@app.command(rich_help_panel=MAINTAIN)
def delete(
    kb: Kb,
    pages: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids of pages.")] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", help="File with one id per line; - for standard input."),
    ] = None,
    missing_ok: Annotated[
        bool, typer.Option("--missing-ok", help="Ignore ids that do not exist.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Delete pages, so that no answer comes from them. Their bytes stay until `kbq compact`."""
    from kbq.maintain.delete import page_ids

    refuse_swapped("delete", kb, *(pages or ()))
    ids: list[str] = []
    if file is not None:
        ids += page_ids(Path(file))
    if pages:
        ids += page_ids(pages)
    if not ids:
        raise typer.BadParameter(
            "no id is given: name pages, or give a --file with one id per line", param_hint="ID"
        )

    after = kbq.KnowledgeBase.open(kb, lazy=True).delete(ids, missing_ok=missing_ok)
    deleted = after.changes.deleted
    facts = {"kb": str(kb), "deleted": deleted, **after.counts.facts}
    tell(
        facts, as_json, f"{kb}: {counted(deleted, 'page')} deleted, {after.counts.pages:,} are left"
    )
    _suggest_compacting(kb, after.manifest)


@app.command(rich_help_panel=MAINTAIN)
def compact(
    kb: Kb,
    threshold: Annotated[
        float,
        typer.Option(
            min=0.0, max=1.0, help="Skip shards with at most this share of deleted pages."
        ),
    ] = 0.0,
    model: MovedModel = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Remove the bytes of deleted pages for good, and join small shards; nothing is encoded again."""
    from kbq.storage.folders import folder_bytes

    before = kbq.KnowledgeBase.open(kb, model, device=device, lazy=True)
    size = folder_bytes(kb)
    with Bar(f"compacting {kb}") as bar:
        after = before.compact(threshold, bar.stage)
    left = folder_bytes(kb)
    sizes = {"bytes": left, "bytes_before": size, "shards": len(after.manifest.shards)}
    removed = before.manifest.size.pages - after.manifest.size.pages
    facts = {"kb": str(kb), **sizes, **after.counts.facts}
    on_disk = f"{terminal.size(left)} on disk instead of {terminal.size(size)}"
    tell(facts, as_json, f"{kb}: {removed:,} deleted pages removed, {on_disk}")


@app.command(rich_help_panel=MAINTAIN)
def verify(
    folder: Annotated[
        Path, typer.Argument(help="A knowledge base, or a model; `default` is the bundled model.")
    ],
    repair: Annotated[
        bool, typer.Option("--repair", help="Rebuild damaged indexes of vectors and of words.")
    ] = False,
    model: MovedModel = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Compare each file with its digest, and name damaged files."""
    from kbq.maintain.verify import verify

    with Bar(f"verifying {folder}") as bar:
        verified = verify(folder, repair, model=model, device=device, report=bar.stage)
    lines = [f"{folder}: {verified.files:,} files, {terminal.size(verified.bytes)}"]
    lines += [f"built again: {part}" for part in verified.repaired] or [
        "all as they were written"
    ] * bool(verified)
    tell(
        asdict(verified) | {"folder": str(verified.folder), "whole": bool(verified)},
        as_json,
        *lines,
    )
    damaged = len(verified.problems) - verified.unread
    unread = f"{verified.unread:,} of its files cannot be read"
    if damaged:
        also = f", and {unread}" if verified.unread else ""
        raise KbqError(
            f"{folder} is damaged: {damaged:,} of its files are not as written{also}",
            verified.problems,
        )

    if verified.unread:
        raise KbqError(f"{folder} may be whole, but {unread}", verified.problems)


def _suggest_compacting(kb: Path, manifest: "Manifest") -> None:
    dead = manifest.size.rows - manifest.counts.rows
    if dead > MUCH * manifest.size.rows:
        note(
            f"deleted pages take {percent(dead / manifest.size.rows)} of the vectors: `kbq "
            f"compact {kb}` removes them"
        )


@index.command("vectors")
def index_vectors(
    context: typer.Context,
    kb: Kb,
    kind: Annotated[
        WantedKind,
        typer.Option(
            help=(
                "Bytes per vector of 384 dimensions: disk 400, on disk; compact 80 and tiny 45, in "
                "memory."
            )
        ),
    ] = "auto",
    recall: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="Share of the ten best phrases that it must find."),
    ] = RECALL,
    queries: Annotated[
        str | None,
        typer.Option(
            help="File of typical queries, one per line; by default, slots of its own pages."
        ),
    ] = None,
    filter: Annotated[
        float | None,
        typer.Option(
            help=(
                "Index only tokens with a filter logit above this; `kbq info` shows the model's "
                "own."
            )
        ),
    ] = None,
    model: TunedModel = None,
    ray: Ray = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Build an index of the vectors, and use it from now on; other indexes stay."""
    from kbq.description import index_facts
    from kbq.index.factory import chosen_kind

    if kind == "exact":  # wrong usage, whatever the knowledge base
        refuse_given(context, "with exact search", ("recall", "queries"))
    before = kbq.KnowledgeBase.open(kb, model, device=device, lazy=True)
    if chosen_kind(before.manifest, kind) == "exact":
        refuse_given(context, "with exact search", ("recall", "queries"))
    texts = []
    if queries is not None:
        texts = [text for _, text in read_queries([], queries)]
    with Bar(f"indexing {kb}") as bar:
        after = before.index_vectors(kind, recall, texts, filter, ray, bar.stage)
    facts = index_facts(kb, after.manifest, after.index)
    tell({"kb": str(kb), **asdict(facts)}, as_json, f"{kb}: {index_line(facts)}")
    if facts.bytes_per_vector > 2 * IN_MEMORY.get(facts.kind, math.inf):
        note(
            f"in a small knowledge base the tables of {facts.kind} outweigh its codes: "
            f"`kbq index vectors {kb} --kind exact` goes back to comparing every vector"
        )
    if facts.recall < facts.target:
        more = {"tiny": "compact, disk or exact", "compact": "disk or exact"}.get(
            facts.kind, "exact"
        )
        advice = (
            f"choose --kind {more} for that" if filter is None else "its --filter hides the rest"
        )
        note(f"even all of its cells do not find {percent(facts.target, 2)}: {advice}")


@index.command("bm25")
def bm25(kb: Kb, as_json: Json = False) -> None:
    """Index the words, for the backends bm25 and hybrid."""
    with Bar(f"indexing {kb}") as bar:
        size = kbq.KnowledgeBase.open(kb, lazy=True).index_bm25(bar.stage).index_bytes
    tell({"kb": str(kb), "bytes": size}, as_json, f"{kb}: a BM25 index of {terminal.size(size)}")


@index.command("sparta")
def sparta(
    kb: Kb,
    model: Annotated[Path, typer.Argument(help="A SPARTA model, from `kbq train sparta`.")],
    terms: option_of(BuildOptions, "terms") = BUILD.terms,  # type: ignore[valid-type]
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Index the word weights of a SPARTA model, for the backends sparta and hybrid."""
    refuse_swapped("index sparta", kb, model)
    with Bar(f"indexing {kb}") as bar:
        size = (
            kbq.KnowledgeBase.open(kb, device=device, lazy=True)
            .index_sparta(model, terms, bar.stage)
            .index_bytes
        )
    tell({"kb": str(kb), "bytes": size}, as_json, f"{kb}: learned impacts of {terminal.size(size)}")


@app.command("export-impacts", rich_help_panel=MAINTAIN)
def export_impacts(
    kb: Kb,
    out: Annotated[Path, typer.Option(callback=output_path, help="File of JSON lines.")],
    as_json: Json = False,
) -> None:
    """Write a SPARTA index for Anserini and Pyserini: the integer impacts of each sentence."""
    sentences = kbq.KnowledgeBase.open(kb, device="cpu", lazy=True).export_impacts(out)
    tell({"out": str(out), "sentences": sentences}, as_json, f"{out}: {sentences:,} sentences")


@app.command("merge-kb", rich_help_panel=MAINTAIN)
def merge_kb(
    out: Annotated[
        Path, typer.Argument(callback=output_path, help="Folder of the new knowledge base.")
    ],
    kbs: Annotated[
        list[Path], typer.Argument(metavar="KB", help="Knowledge bases of the same model.")
    ],
    as_json: Json = False,
) -> None:
    """Join knowledge bases built with the same model, by linking their files."""
    from kbq.dump.manifest import read_manifest
    from kbq.maintain.merge import merge

    with Bar(f"merging {out}") as bar:
        manifest = merge(out, kbs, bar.stage)
    counts = manifest.counts
    shards = len(manifest.shards)
    contents = f"{counted(counts.pages, 'page')}, {counted(counts.rows, 'token vector')}"
    tell(
        {"kb": str(out), **counts.facts, "shards": shards},
        as_json,
        f"{out}: {contents}, in {counted(shards, 'shard')}",
    )
    if any(read_manifest(kb).bm25 for kb in kbs) and not manifest.bm25:
        note(f"not all of them have an index of words: add one with `kbq index bm25 {out}`")
    if any(read_manifest(kb).sparta for kb in kbs):
        note(
            "learned impacts are left out, as their models may differ: add them with `kbq index "
            f"sparta {out} MODEL`"
        )


@app.command("pages", rich_help_panel=MAINTAIN)
def list_pages(
    kb: Kb,
    words: Annotated[str, typer.Argument(help="Only pages whose title contains this text.")] = "",
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=VALUE", help="Only pages with this metadata; repeat it."),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="List at most this many; 0: all.")] = 0,
    as_json: Json = False,
) -> None:
    """List the pages of a knowledge base: the id and the title of each, with a tab between them.

    The ids make a file for --pages: kbq pages KB --where language=en | cut -f1 > ids.txt
    """
    from kbq.corpus.pages import has_value
    from kbq.dump.page_directory import Pages

    refuse_swapped("pages", kb, words)
    pages = Pages.open(kb)
    required = [page.partition("=")[::2] for page in where or ()]
    names: Iterable[tuple[str, str]] = pages.names()
    if required:
        fields = list(pages.metadata())
        for name, _ in required:
            if not any(name in field for field in fields):
                known = ", ".join(list(dict.fromkeys(chain.from_iterable(fields)))[:NAMED])
                advice = (
                    f"the fields are {known}"
                    if known
                    else "no page has any, see the guide to your own text"
                )
                raise KbqError(f"no page has metadata {name!r:.80}: {advice}", is_usage=True)

        names = compress(
            names, (all(has_value(field, *pair) for pair in required) for field in fields)
        )

    listed = list(
        islice((page for page in names if words.casefold() in page[1].casefold()), limit or None)
    )
    tell(
        {"pages": [{"id": page_id, "title": title} for page_id, title in listed]},
        as_json,
        *(f"{page_id}\t{title}" for page_id, title in listed),
    )


app.add_typer(importing, name="import", rich_help_panel=MAINTAIN)
Dump = Annotated[Path, typer.Argument(help="The official folder dump/.")]
NewKb = Annotated[
    Path, typer.Argument(callback=output_path, help="Folder of the new knowledge base.")
]
Checkpoint = Annotated[
    str, typer.Option(help="The checkpoint that made the vectors, or a model made of it.")
]
Words = Annotated[bool, typer.Option("--bm25/--no-bm25", help="Also index the words.")]


@importing.command()
def checkpoint(
    source: Annotated[
        str,
        typer.Argument(help="A folder, or a hub name such as princeton-nlp/densephrases-multi."),
    ],
    out: Annotated[Path, typer.Option(callback=output_path, help="Folder of the new model.")],
    vocabulary: Annotated[
        str | None,
        typer.Option(help="Folder or hub name with the word pieces, if the checkpoint lacks them."),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            help="The model that the checkpoint was tuned from, if it only encodes queries."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Turn a checkpoint into a model that gives the same vectors as the official code."""
    from kbq.importing.checkpoint import import_checkpoint

    made = import_checkpoint(source, out, vocabulary=vocabulary, base=base, command=typed_command())
    what = "a model"
    if made.base:
        what = f"a query encoder for the model {made.base}"
    facts = dataclasses.asdict(made) | {"folder": str(made.folder)}
    sizes = f"{made.layers} layers, {made.dim} dimensions, {made.pieces:,} word pieces"
    tell(facts, as_json, f"{made.folder}: {what}, {sizes}")


@importing.command()
def dump(
    dump: Dump,
    kb: NewKb,
    model: Checkpoint,
    bm25: Words = True,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Turn a phrase dump into a knowledge base, with its vectors unchanged. A killed run resumes."""
    from kbq.importing.dump import import_dump

    with Bar(f"importing {kb}") as bar:
        imported = import_dump(
            dump,
            kb,
            model,
            bm25=bm25,
            device=device,
            report=bar.pages,
            report_stage=bar.stage,
            note=note,
        )

    _tell(imported, as_json)


@importing.command("index")
def index_of_densephrases(
    dump: Dump,
    kb: NewKb,
    name: Annotated[
        str, typer.Option(help="Folder of the index in DUMP, such as start/1048576_flat_OPQ96.")
    ],
    model: Checkpoint,
    bm25: Words = True,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Turn an index alone into a knowledge base, with its codes unchanged. A killed run resumes."""
    from kbq.importing.index import import_index

    with Bar(f"importing {kb}") as bar:
        imported = import_index(
            dump,
            kb,
            model,
            name,
            bm25=bm25,
            device=device,
            report=bar.pages,
            report_stage=bar.stage,
            note=note,
        )

    _tell(imported, as_json)


def _tell(imported: "Imported", as_json: bool) -> None:
    """Print what a knowledge base holds, and how many tokens of the dump are missing in its text."""
    from kbq.storage.folders import folder_bytes

    counts = imported.manifest.counts
    misfits = imported.misfits
    size = folder_bytes(imported.folder)
    for problem in misfits.named:
        note(problem)
    if misfits.tokens:
        documents = f"{misfits.tokens:,} tokens of {misfits.documents:,} documents"
        note(
            f"no phrase opens or closes at {documents}, as their characters are not in one "
            "paragraph"
        )

    facts = {
        "kb": str(imported.folder),
        **counts.facts,
        "index": imported.manifest.index.kind,
        "bytes": size,
    }
    text = f"{counts.pages:,} pages, {counts.paragraphs:,} paragraphs, {counts.tokens:,} tokens"
    facts |= {"misfits": misfits.tokens, "documents_with_misfits": misfits.documents}
    lines = (
        f"{imported.folder}: {text}",
        f"{counts.rows:,} token vectors, {terminal.size(size)} on disk",
    )
    tell(facts, as_json, *lines)


app.add_typer(cluster, name="cluster", rich_help_panel=MAINTAIN)


@cluster.callback()
def _cluster() -> None:
    """Check the machines of a Ray cluster."""


@cluster.command("check")
def check(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="The head of the cluster.")],
    kb: Annotated[
        Path | None, typer.Argument(help="A knowledge base whose shards the nodes should open.")
    ] = None,
    index: IndexName = None,
    as_json: Json = False,
) -> None:
    """List the nodes, whether they compute as this machine does, and which shards each can open."""
    from kbq.cluster.nodes import check

    report = check(address, kb, index)
    lines: list[str] = []
    for node in report.nodes:
        versions = f"kbq {node.kbq or '?'}, torch {node.torch or '?'}"
        lines.append(f"node {node.address}: {node.cpus} CPUs, {versions}, {node.cpu or '?'}")

    lines += [
        f"{group.shards} on node {group.node}: {'cannot be opened' if group.problem else 'open'}"
        for group in report.groups
    ]
    tell(dataclasses.asdict(report) | {"usable": not report.problems}, as_json, *lines)
    if report.problems:
        raise ClusterError(f"the cluster at {address} cannot be used as it is", report.problems)
