"""Page ids: known, sorted and recent ones."""

import pytest

from kbq.corpus.pages import PageIds


def test_page_ids_in_recent_and_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PageIds, "max_recent", 4)
    page_ids = PageIds(str(number) for number in range(3))
    for number in range(3, 12):  # 8 of them are sorted soon, 1 is recent
        assert page_ids.add(str(number))
    for number in range(12):
        assert str(number) in page_ids
        assert not page_ids.add(str(number))
    assert "12" not in page_ids
