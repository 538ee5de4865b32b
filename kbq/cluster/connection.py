"""Connection: connect to a Ray cluster whose nodes all compute the same bits as this machine."""

import logging
import os
import platform
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from tempfile import gettempdir, mkdtemp
from typing import Any

import ray
import torch
from ray._private import worker
from ray._raylet import GcsClient  # type: ignore[attr-defined]
from ray.exceptions import AuthenticationError, GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import kbq
from kbq.errors import ClusterError, first_line
from kbq.model.devices import fast_dtype
from kbq.storage.machine import cpu_has

LOCAL = "local"  # the address of a cluster that this process starts and ends
LOOPBACK = "127.0.0.2"  # Ray replaces 127.0.0.1 by the address that other machines see
LONGEST_FOLDER = 30  # characters of TMPDIR, as the paths of Ray's sockets in it may have 107 bytes
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 300.0  # time for a node to start a process that describes it


@dataclass(frozen=True, slots=True)
class Software:
    """The software and the CPU of a machine, which decide the bits of vectors and scores."""

    kbq: str
    torch: str
    cpu: str  # how it multiplies


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of a cluster."""

    id: str
    address: str
    cpus: int


class Cluster:
    """A cluster that this process is connected to, until `close`."""

    def __init__(self, address: str, nodes: list[Node], began_here: bool) -> None:
        self.address = address
        self.nodes = nodes
        self._began_here = began_here

    @property
    def cpus(self) -> int:
        """The number of tasks of one thread that run at a time."""
        return sum(node.cpus for node in self.nodes)

    def close(self) -> None:
        """End the connection and all its tasks, if it began here."""
        if self._began_here:
            ray.shutdown()


_CONNECTED: dict[str, str] = {}  # Ray's address of the head by the given one
_ALIKE: set[str] = set()  # ids of nodes that have been compared with this machine


def connect(address: str, alike: bool = True) -> Cluster:
    """Connect to the cluster at this address, `HOST:PORT` of its head or `local`.

    `alike` refuses nodes that compute otherwise than this machine. Raises ClusterError if there is
    no cluster, or for such a node.
    """
    if address != LOCAL:
        _refuse_deaf(address)
    begins_here = not ray.is_initialized()
    if begins_here:
        _initialise(address)
        _CONNECTED[address] = ray.get_runtime_context().gcs_address
    elif address != LOCAL:
        _refuse_other(address)

    alive = [member for member in ray.nodes() if member["Alive"]]
    nodes = [
        Node(member["NodeID"], member["NodeManagerAddress"], int(member["Resources"].get("CPU", 0)))
        for member in alive
    ]
    cluster = Cluster(address, sorted(nodes, key=lambda node: (node.address, node.id)), begins_here)
    try:
        if alike:
            refuse_unlike(cluster.nodes)
        if not cluster.cpus:
            raise ClusterError(
                f"the nodes of the cluster at {address} have no CPUs: start a node that has some"
            )
    except ClusterError:
        cluster.close()
        raise

    return cluster


def _initialise(address: str) -> None:
    """Connect to Ray, which is told to print nothing."""
    options: dict[str, Any] = {
        "log_to_driver": False,
        "configure_logging": False,
        "logging_level": logging.ERROR,
    }
    logging.getLogger("ray").setLevel(logging.ERROR)
    # Else Ray prints among a command's answers.
    worker.print_to_stdstream = lambda data, ignore_prefix: None
    if address == LOCAL:
        # Else workers wait for all other processes.
        os.environ.setdefault("RAY_worker_niceness", "0")
        options |= {"_node_ip_address": LOOPBACK, "include_dashboard": False}
        if len(gettempdir()) > LONGEST_FOLDER:
            options["_temp_dir"] = mkdtemp(prefix="kbq-", dir="/tmp")

    try:
        if address != LOCAL:
            GcsClient(address)  # refuses a wrong token at once; `init` complains for half a minute
        ray.init(address, **options)
    except AuthenticationError:
        raise ClusterError(
            f"the Ray cluster at {address} refuses this machine's token: set RAY_AUTH_MODE=token, "
            "and copy the head's token (`ray get-auth-token`) to ~/.ray/auth_token"
        ) from None
    except (RayError, OSError, RuntimeError, ValueError, SystemExit) as error:
        where = f"the Ray cluster at {address}"
        advice = "is this its head, with the same Ray, and this machine a node?"
        if address == LOCAL:
            where = "a Ray cluster on this machine"
            advice = "set TMPDIR to a short folder with free space, such as /tmp"
        raise ClusterError(f"{where} cannot be used ({first_line(error)}): {advice}") from None


def _refuse_deaf(address: str) -> None:
    """Refuse an address where nothing listens, as Ray would wait for minutes and then end the
    process.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise ClusterError(
            f"{address!r} is not the address of a Ray cluster: write HOST:PORT of its head, such "
            f"as 10.0.0.1:6379, or {LOCAL}",
            is_usage=True,
        )

    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise ClusterError(
            f"no Ray cluster answers at {address} ({reason}): start its head there with "
            f"`ray start --head --port {port}`, and see that no firewall is between"
        ) from None


def _refuse_other(address: str) -> None:
    """Refuse another cluster, as a process is connected to one at a time."""
    host, _, port = address.rpartition(":")
    connected = ray.get_runtime_context().gcs_address
    if _CONNECTED.get(address) != connected and f"{socket.gethostbyname(host)}:{port}" != connected:
        raise ClusterError(
            f"this process is connected to the Ray cluster at {connected}: use that, or call "
            f"ray.shutdown() before {address}"
        )


def own_software() -> Software:
    number = str(fast_dtype(torch.device("cpu"))).removeprefix("torch.")
    tiles = " with AMX" if cpu_has("amx_bf16") else ""
    cpu = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}{tiles} in {number}"
    return Software(kbq.__version__, torch.__version__, cpu)


def software_of(nodes: list[Node]) -> dict[Node, Software | str]:
    """Return the software of each node, or why it is unknown."""

    def looked_at() -> Any:  # nested, so that a node without kbq can load it
        try:
            from kbq.cluster.connection import own_software
        except Exception as error:
            return f"has no kbq that works ({error}): install the same one on all nodes"
        return own_software()

    asked = {}
    for node in nodes:
        strategy = NodeAffinitySchedulingStrategy(node.id, soft=False)
        asked[node] = (
            ray.remote(looked_at)
            .options(num_cpus=0, scheduling_strategy=strategy, max_retries=0)
            .remote()
        )

    by_node: dict[Node, Software | str] = {}
    for node, answer in asked.items():
        try:
            by_node[node] = ray.get(answer, timeout=ANSWER_SECONDS)
        except GetTimeoutError:
            by_node[node] = f"does not answer in {ANSWER_SECONDS:.0f} seconds: start it again"
        except RayError as error:
            by_node[node] = f"cannot be used: {first_line(error)}"

    return by_node


def refuse_unlike(nodes: list[Node]) -> None:
    """Raise ClusterError if a node would compute other bits than this machine. Each node is
    compared once.
    """
    own = own_software()
    problems = []
    for node, software in software_of([node for node in nodes if node.id not in _ALIKE]).items():
        if isinstance(software, str):
            problems.append(f"node {node.address} {software}")
        else:
            problems += [
                f"node {node.address} {difference}" for difference in differences(software, own)
            ]

    if len(problems) == 1:
        raise ClusterError(problems[0])
    if problems:
        raise ClusterError(f"{len(problems)} nodes of the cluster cannot be used", problems)
    _ALIKE.update(node.id for node in nodes)


def differences(there: Software, here: Software) -> Iterator[str]:
    """Yield the reasons why a machine computes other bits than another."""
    for name, theirs, ours in (("kbq", there.kbq, here.kbq), ("torch", there.torch, here.torch)):
        if theirs != ours:
            yield f"has {name} {theirs}, this machine {ours}: install the same on all nodes"
    if there.cpu != here.cpu:
        yield (
            f"multiplies as {there.cpu}, this machine as {here.cpu}: their vectors would differ, "
            "so use machines of one kind"
        )
