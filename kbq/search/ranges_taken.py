"""Ranges taken: the units chosen so far in one paragraph; and the first that another unit runs into."""

from bisect import bisect_right

MOST = 512  # ranges of a block


class RangesTaken:
    """Ranges [begin, stop) that do not overlap, in order; to find one, or to add one, takes O(log n) and a short copy.

    They are kept in blocks, as a place in the middle of one long list would cost a copy of half of it: of a paragraph
    of 1.5 MB, all phrases may be asked for.

    >>> taken = RangesTaken()
    >>> taken.first_within(0, 9), taken.add(4, 6), taken.add(0, 2), taken.first_within(1, 5), taken.first_within(2, 4)
    (None, None, None, 0, None)
    """

    def __init__(self) -> None:
        self._blocks: list[tuple[list[int], list[int]]] = []  # begins and stops; both ascend, as nothing overlaps
        self._last_stops: list[int] = []  # of the blocks

    def first_within(self, begin: int, stop: int) -> int | None:
        """Where the first range begins that overlaps [begin, stop), if there is one."""
        number = bisect_right(self._last_stops, begin)
        if number == len(self._blocks):
            return None
        begins, stops = self._blocks[number]
        found = begins[bisect_right(stops, begin)]  # of the first range that stops after `begin`
        return found if found < stop else None

    def add(self, begin: int, stop: int) -> None:
        """Take a range, which must overlap none."""
        if not self._blocks:
            self._blocks.append(([], []))
            self._last_stops.append(stop)
        number = min(bisect_right(self._last_stops, begin), len(self._blocks) - 1)
        begins, stops = self._blocks[number]
        place = bisect_right(stops, begin)
        begins.insert(place, begin)
        stops.insert(place, stop)
        self._last_stops[number] = stops[-1]
        if len(begins) > MOST:
            half = MOST // 2
            self._blocks[number : number + 1] = [(begins[:half], stops[:half]), (begins[half:], stops[half:])]
            self._last_stops[number : number + 1] = [stops[half - 1], stops[-1]]
