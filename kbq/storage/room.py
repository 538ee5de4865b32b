"""Room: a table is in memory as a whole, so it may have so many cells and characters."""

from dataclasses import dataclass

from kbq.errors import KbqError

CELLS, CHARACTERS = 10_000_000, 2**28  # about a gigabyte each, at most
ROW = 3  # what a row takes, in cells, beside them


@dataclass(slots=True)
class Room:
    """The room that is left for the rows of a table."""

    table: str  # its name, for messages
    cells: int = CELLS
    characters: int = CHARACTERS

    def take(self, rows: int = 0, cells: int = 0, characters: int = 0) -> None:
        """Take room for some rows. Raises KbqError if there is not enough."""
        self.cells -= ROW * rows + cells
        self.characters -= characters
        if min(self.cells, self.characters) < 0:
            most = f"{CELLS:,} cells" if self.cells < 0 else f"{CHARACTERS:,} characters"
            raise KbqError(f"{self.table} has more than {most}: divide it into several tables")
