"""Cluster: `kbq cluster check` says whether the machines of a Ray cluster can be used."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from kbq.commands.application import Commands
from kbq.commands.options import MAINTAIN, IndexName, Json
from kbq.commands.terminal import tell
from kbq.errors import ClusterError

app = typer.Typer()
cluster = typer.Typer(cls=Commands, help="Check the machines of a Ray cluster.", no_args_is_help=True)
app.add_typer(cluster, name="cluster", rich_help_panel=MAINTAIN)


@cluster.callback()
def _cluster() -> None:
    """Check the machines of a Ray cluster."""


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
        for group in report.groups
    ]
    tell(dataclasses.asdict(report) | {"usable": not report.problems}, as_json, *lines)
    if report.problems:
        raise ClusterError(f"the cluster at {address} cannot be used as it is", report.problems)
