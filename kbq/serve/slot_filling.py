"""Slot filling: slots are asked for in batches, through the queue of the service; they become claims of `kbq fill`."""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import chain

from kbq.answers import LOOKS, TOP, Answer, SearchOptions
from kbq.search.search import BATCH
from kbq.serve.batcher import Batcher
from kbq.serve.knowledge_bases import ServedKb
from kbq.tables.claims import Claim
from kbq.tables.deciding import Decider
from kbq.tables.options import MIN_PROBABILITY
from kbq.tables.slots import Slot

SEARCH = SearchOptions(LOOKS, "phrase")  # as `kbq fill` searches


class SlotFiller:
    """Fills slots from one knowledge base."""

    def __init__(self, served: ServedKb, batcher: Batcher) -> None:
        self.served, self._batcher = served, batcher

    @property
    def min_probability(self) -> float:
        """Below which a value is not accepted, unless told otherwise; 0 where nothing says how likely it is."""
        return 0.0 if self.served.kb.calibration(SEARCH) is None else MIN_PROBABILITY

    async def claims(self, slots: Sequence[Slot], pages: Sequence[str] = ()) -> list[list[Claim]]:
        """The claims of each slot: those accepted or, where there is none, the best guess; none where nothing is found.

        Args:
            slots: those that the encoder cannot read have no claims. Relations have thresholds of their own, or
                `min_probability`.
            pages: ids: the page, for each slot, that alone is listened to.
        """
        queries = await asyncio.to_thread(self._queries, slots)
        answers = await self._answers([query for of_slot in queries for query in of_slot])
        return await asyncio.to_thread(self._decided, slots, queries, answers, pages)

    def _queries(self, slots: Sequence[Slot]) -> list[list[str]]:
        accepts = self.served.kb.model.query_tokenizer.accepts
        return [[query for query in slot.queries if accepts(query)] for slot in slots]

    def _decided(
        self,
        slots: Sequence[Slot],
        queries: Sequence[Sequence[str]],
        answers: Iterable[list[Answer]],
        pages: Sequence[str],
    ) -> list[list[Claim]]:
        decider = Decider(self.served.kb.titles, self.min_probability, TOP, {})
        left, claims = iter(answers), []
        for number, (slot, of_slot) in enumerate(zip(slots, queries, strict=True)):
            said = [next(left) for _ in of_slot]
            if pages:
                said = [[answer for answer in each if answer.page_id == pages[number]] for each in said]
            claims.append(decider.claims(slot, said))
        every = list(chain.from_iterable(claims))
        kept = iter(decider.consistent(every, [slot.relation for slot in slots]))
        return [[next(kept) for _ in found] for found in claims]

    async def _answers(self, texts: Sequence[str]) -> list[list[Answer]]:
        """Batch after batch, so that others have their turn."""
        found: list[list[Answer]] = []
        for first in range(0, len(texts), BATCH):
            found += await self._batcher.ask(self.served, texts[first : first + BATCH], SEARCH)
        return found
