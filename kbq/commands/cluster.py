"""Cluster: `kbq cluster check` says whether the machines of a Ray cluster can be used, `place` gives them shards."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from kbq.commands.application import Commands
from kbq.commands.options import MAINTAIN, IndexName, Json, Kb
from kbq.commands.progress import Bar
from kbq.commands.terminal import tell
from kbq.errors import ClusterError

app = typer.Typer()
cluster = typer.Typer(
    cls=Commands, help="Check the machines of a Ray cluster, and give them shards.", no_args_is_help=True
)
app.add_typer(cluster, name="cluster", rich_help_panel=MAINTAIN)


@cluster.callback()
def _cluster() -> None:
    """Check the machines of a Ray cluster, and give them shards."""


@cluster.command("check")
def check(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="The head of the cluster.")],
    kb: Annotated[Path | None, typer.Argument(help="A knowledge base whose shards the nodes should open.")] = None,
    index: IndexName = None,
    as_json: Json = False,
) -> None:
    """List the nodes, and say whether they compute as this machine does and which shards each can open."""
    from kbq.cluster.nodes import check

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
    kb: Kb,
    ray: Annotated[str, typer.Option(metavar="HOST:PORT", help="The head of the cluster.")],
    to: Annotated[Path, typer.Option(help="A folder on each node's own disk, created if it is missing.")],
    as_json: Json = False,
) -> None:
    """Copy the shards that each node searches to its own disk, where searches with --ray then read them.

    Files that are there already are compared, not copied. A copy of an older knowledge base is never read.
    """
    from kbq.cluster.nodes import place

    with Bar("placing") as bar:
        copies = place(ray, kb, to, bar.stage)
    lines = [f"{copy.shards} on node {copy.node}: {copy.bytes:,} bytes copied to {copy.folder}" for copy in copies]
    tell({"groups": [dataclasses.asdict(copy) for copy in copies]}, as_json, *lines)
