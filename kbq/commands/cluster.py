"""Cluster: `kbq cluster check` says whether the machines of a Ray cluster can be used, `place` gives them shards."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from kbq.commands.application import Commands
from kbq.commands.options import MAINTAIN, IndexName, Json
from kbq.commands.terminal import tell
from kbq.errors import ClusterError

app = typer.Typer()
cluster = typer.Typer(
    cls=Commands, help="Look at the machines of a Ray cluster, and give them shards.", no_args_is_help=True
)
app.add_typer(cluster, name="cluster", rich_help_panel=MAINTAIN)


@cluster.callback()
def _cluster() -> None:
    """Look at the machines of a Ray cluster, and give them shards."""


@cluster.command("check")
def check(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="The head of the cluster.")],
    kb: Annotated[Path | None, typer.Argument(help="A knowledge base: open its shards on the nodes, too.")] = None,
    index: IndexName = None,
    as_json: Json = False,
) -> None:
    """Say which nodes there are, whether they compute as this machine does, and which shards each can open."""
    from kbq.cluster.checking import check

    report = check(address, kb, index)
    lines = [
        f"node {node.address}: {node.cpus} CPUs, kbq {node.kbq or '?'}, torch {node.torch or '?'}, {node.cpu or '?'}"
        for node in report.nodes
    ]
    lines += [
        f"{group.shards} on node {group.node}: {'cannot be opened' if group.problem else 'open'}"
        + f", {group.copies} of {group.count} on its own disk" * bool(group.copies)
        for group in report.groups
    ]
    tell(dataclasses.asdict(report) | {"usable": not report.problems}, as_json, *lines)
    if report.problems:
        raise ClusterError(f"the cluster at {address} cannot be used as it is", report.problems)


@cluster.command("place")
def place(
    kb: Annotated[Path, typer.Argument(help="A knowledge base.")],
    ray: Annotated[str, typer.Option(metavar="HOST:PORT", help="The head of the cluster.")],
    to: Annotated[Path, typer.Option(help="A folder on each node's own disk; it is made where it is missing.")],
    as_json: Json = False,
) -> None:
    """Copy to each node's own disk the shards that it searches; searches with --ray read them there from then on.

    What is there already is compared, not copied. A copy that is not as the knowledge base is now is never read.
    """
    from kbq.cluster.placing import place
    from kbq.commands.progress import stage_progress

    with stage_progress("placing") as report:
        copies = place(ray, kb, to, report)
    lines = [f"{copy.shards} on node {copy.node}: {copy.bytes:,} bytes copied to {copy.folder}" for copy in copies]
    tell({"groups": [dataclasses.asdict(copy) for copy in copies]}, as_json, *lines)
