"""Power cuts: what is written is recorded, and the folder is made again as each moment's power cut
might leave it.

A file system keeps what was synchronised. Of the rest it may keep anything: names that were given
or taken away since their folder was synchronised, contents since their file was. As in ALICE
(Pillai et al., OSDI 2014), what a crash leaves is built from the recorded order of operations, not
waited for.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from unittest.mock import patch

Tree: TypeAlias = dict[str, bytes | None]  # the content of each file, None for a folder, by path
Names: TypeAlias = dict[tuple[int, str], int]  # the inode of each name, by the inode of its folder
CHANGES = (
    "mkdir", "rename", "replace", "unlink", "remove", "rmdir", "link", "symlink", "truncate",
    "fsync",
)  # fmt: skip
MOST = 4  # changes of names that are tried one by one


@dataclass(slots=True)
class Disk:
    """What lies below a folder, and which of it is on the disk."""

    root: Path
    durable_names: Names = field(default_factory=dict)
    durable: dict[int, bytes] = field(default_factory=dict)  # contents
    names: Names = field(default_factory=dict)  # as they are now
    contents: dict[int, bytes] = field(default_factory=dict)
    folders: set[int] = field(default_factory=set)
    states: dict[int, Tree] = field(default_factory=dict)  # by digest
    cuts: int = 0
    # Open files, so that no inode stands for two.
    _held: dict[int, int] = field(default_factory=dict)

    def look(self) -> None:
        """Read what is there now."""
        self.names, self.contents = {}, {}
        todo = [self.root]
        while todo:
            place = todo.pop()
            inode = self._hold(place)
            self.folders.add(inode)
            for path in place.iterdir():
                self.names[inode, path.name] = self._hold(path)
                if path.is_dir():
                    todo.append(path)
                    self.folders.add(self._held_inode(path))
                else:
                    self.contents[self._held_inode(path)] = path.read_bytes()

    def _held_inode(self, path: Path) -> int:
        return path.stat().st_ino

    def _hold(self, path: Path) -> int:
        inode = path.stat().st_ino
        if inode not in self._held:
            self._held[inode] = os.open(path, os.O_RDONLY)
        return inode

    def settle(self) -> None:
        """All that is there now is on the disk."""
        self.look()
        self.durable_names, self.durable = dict(self.names), dict(self.contents)

    def synchronised(self, handle: int) -> None:
        """A file, or the names in a folder, are on the disk."""
        self.look()
        inode = os.fstat(handle).st_ino
        if inode in self.folders:
            self.durable_names = {
                place: held for place, held in self.durable_names.items() if place[0] != inode
            }
            self.durable_names |= {
                place: held for place, held in self.names.items() if place[0] == inode
            }
        elif inode in self.contents:
            self.durable[inode] = self.contents[inode]

    def cut(self) -> None:
        """Add what may be left if the power is cut now."""
        self.look()
        self.cuts += 1
        lost = {inode: self.durable.get(inode, b"") for inode in {*self.contents, *self.durable}}
        torn = {inode: _torn(lost[inode], content) for inode, content in self.contents.items()}
        for names in self._possible_names():
            for contents in (lost, lost | torn, lost | self.contents):
                tree = self._tree(names, contents)
                self.states.setdefault(
                    hash(tuple(sorted(tree.items(), key=lambda item: item[0]))), tree
                )

    def _possible_names(self) -> Iterator[Names]:
        """The names on the disk, those of now, and both with one change more, or one less."""
        yield self.durable_names
        yield self.names
        before, now = _places(self.durable_names), _places(self.names)
        changed = [
            inode for inode in sorted({*before, *now}) if before.get(inode) != now.get(inode)
        ]
        for inode in (
            changed
            if len(changed) <= MOST
            else [changed[0], changed[len(changed) // 2], changed[-1]]
        ):
            old, new = before.get(inode, set()), now.get(inode, set())
            gone, come = old - new, new - old
            if (
                all(place in self.names for place in gone) and not come
            ):  # it was replaced by another one
                continue
            done = {place: held for place, held in self.durable_names.items() if place not in gone}
            yield done | dict.fromkeys(come, inode)
            undone = {place: held for place, held in self.names.items() if place not in come}
            yield undone | {
                place: self.durable_names[place]
                for place in (*gone, *come)
                if place in self.durable_names
            }

    def _tree(self, names: Names, contents: Mapping[int, bytes]) -> Tree:
        tree: Tree = {}

        def add(folder: int, path: str) -> None:
            for (parent, name), inode in names.items():
                if parent == folder:
                    tree[f"{path}{name}"] = (
                        None if inode in self.folders else contents.get(inode, b"")
                    )
                    if inode in self.folders:
                        add(inode, f"{path}{name}/")

        add(self._held_inode(self.root), "")
        return tree

    def close(self) -> None:
        """Let go of all files."""
        for handle in self._held.values():
            os.close(handle)


def _places(names: Names) -> dict[int, set[tuple[int, str]]]:
    places: dict[int, set[tuple[int, str]]] = {}
    for place, inode in names.items():
        places.setdefault(inode, set()).add(place)
    return places


def _torn(durable: bytes, now: bytes) -> bytes:
    """Half of what was written has come to the disk, the rest of the file's new length is zeros, or
    what was there.
    """
    first = len(durable) if now.startswith(durable) else 0
    half = first + (len(now) - first) // 2
    return now[:half] + durable[half : len(now)].ljust(len(now) - half, b"\0")


@contextmanager
def recorded(root: Path) -> Iterator[Disk]:
    """Record what is written below a folder: the power may be cut before and after each operation."""
    disk = Disk(root)
    disk.settle()

    def before(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def done(*arguments: Any, **named: Any) -> Any:
            disk.cut()
            result = None if name == "fsync" else real(*arguments, **named)
            if name == "fsync":
                disk.synchronised(arguments[0])
            return result

        return done

    patches = [patch.object(os, name, before(name, getattr(os, name))) for name in CHANGES]
    for one in patches:
        one.start()
    for one in patches:
        os.supports_dir_fd.add(getattr(os, one.attribute))
    try:
        yield disk
    finally:
        for one in patches:
            one.stop()
        disk.cut()
        disk.close()


def write_tree(tree: Tree, folder: Path) -> Path:
    """Make a folder what a power cut has left."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in sorted(tree.items()):
        if content is None:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(content)
    return folder
