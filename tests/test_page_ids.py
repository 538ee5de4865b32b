"""Page ids: the sorted ones and the recent ones."""

import pytest

from kbq.errors import CorpusError
from kbq.page_ids import PageIds


def test_page_ids_in_recent_and_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PageIds, "max_recent", 4)
    page_ids = PageIds(str(number) for number in range(9))  # 8 sorted, 1 recent
    page_ids.add("9")
    for number in range(10):
        with pytest.raises(CorpusError, match=f"page id '{number}' is taken"):
            page_ids.add(str(number))
    page_ids.add("10")
