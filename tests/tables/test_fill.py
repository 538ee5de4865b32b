"""Fill: the sample's facts get into tables, killed runs give the same bytes, and what is refused is
one sentence.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from killed import Killed

import kbq
from kbq.answers import Answer
from kbq.asking import searcher
from kbq.errors import KbqError
from kbq.kb import KnowledgeBase
from kbq.reading.probability import own_calibration
from kbq.search.options import SearchOptions
from kbq.storage.reports import unheard
from kbq.tables import fill as tables_fill
from kbq.tables.claims import Claim
from kbq.tables.fill import FillReport
from kbq.text.queries import Query

pytestmark = pytest.mark.usefixtures("modest")
BATCH = 16  # queries searched together by `many`

PEOPLE = (
    "name,note,place of birth,date of birth\nMarie Curie,a,,\nGalileo Galilei,b,here,\nZork "
    "Blah,,,\nMarie Curie,d,,x\n"
)


@pytest.fixture
def people(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    path.write_text(PEOPLE, "utf-8")
    return path


def answer_to_cell(kb: KnowledgeBase, subject: str, relation: str) -> Answer:
    """The best answer to a slot query, with the probability of a cell."""
    options = SearchOptions(10, purpose="cell")
    ((best, *_),) = kb.searcher.search([Query.of(f"{subject} [SEP] {relation}")], options)
    return best


def test_empty_cells_are_filled_and_all_else_stays(sample: KnowledgeBase, people: Path) -> None:
    out = people.with_name("out.csv")
    said: list[tuple[int, int, int]] = []
    table = sample.fill(
        people, ["place of birth", "date of birth", "record label"], out, subject="name",
        report=lambda *numbers: said.append(numbers),
    )  # fmt: skip
    assert out.read_text() == (
        "name,note,place of birth,date of birth,record label\nMarie Curie,a,Warsaw,7 November 1867,\n"
        "Galileo Galilei,b,here,15 February 1564,\nZork Blah,,,,\nMarie Curie,d,Warsaw,x,\n"
    )
    # Equal subjects are asked for once: of 12 cells, 2 have a value, and 2 are asked for twice.
    assert (table.counts.rows, table.counts.cells, table.counts.queries, table.counts.filled) == (
        4,
        8,
        8,
        3,
    )
    assert said == [(0, 8, 0), (8, 8, 3)]
    lines = people.with_name("out.claims.jsonl").read_text("utf-8").splitlines()
    claims = [Claim.from_dict(json.loads(line)) for line in lines]
    assert tuple(claims) == table.claims
    birth = claims[0]
    assert (birth.subject, birth.value, birth.page_id, birth.start, birth.accepted) == (
        "Marie Curie",
        "Warsaw",
        "S001",
        24,
        True,
    )
    assert birth.probability == pytest.approx(0.95, abs=0.03)
    assert [claim.accepted for claim in claims if claim.subject == "Zork Blah"] == [
        False,
        False,
        False,
    ]
    assert len(people.with_name("out.answers.jsonl").read_bytes().splitlines()) == len(claims)
    answer = answer_to_cell(sample, "Marie Curie", "place of birth")
    assert (answer.text, round(answer.probability or 0, 4), answer.place) == (
        birth.value, birth.probability, (birth.page_id, birth.paragraph, birth.start, birth.end),
    )  # fmt: skip


def test_claims_equal_the_answers_to_single_queries(sample: KnowledgeBase) -> None:
    titles = [shard.titles[page] for shard in sample.searcher.shards for page in range(5)]
    relations = ["place of birth", "founder", "country"]
    table = sample.fill(
        [{"subject": title} for title in titles], relations, min_probability=0.0, top=0
    )
    for claim in table.claims:
        best = answer_to_cell(sample, claim.subject, claim.relation)
        assert (claim.value, claim.probability) == (best.text, round(best.probability or 0, 4))
    assert len(table.claims) == len(titles) * len(relations)


def test_values_that_are_there_are_overwritten_only_if_asked_for(sample: KnowledgeBase) -> None:
    rows = [{"subject": "Isaac Newton", "place of birth": "here", "x": None}]
    with pytest.raises(
        KbqError,
        match="no row has a subject and an empty cell in 'place of birth': overwrite=… asks",
    ):
        sample.fill(rows, ["place of birth"])
    table = sample.fill(rows, ["place of birth"], overwrite=True)
    assert table.rows == [{"subject": "Isaac Newton", "place of birth": "Woolsthorpe", "x": None}]
    assert rows[0]["place of birth"] == "here"


def test_a_promised_precision_is_the_calibrations_threshold(
    sample: KnowledgeBase, tmp_path: Path
) -> None:
    # Most are people.
    rows = [{"subject": sample.searcher.shards[0].titles[page]} for page in range(20)]
    wanted = ["place of birth"]
    out = tmp_path / "t.csv"  # whose answers serve both
    every, promised = (sample.fill(rows, wanted, out, **how) for how in ({}, {"precision": 0.9}))  # type: ignore[arg-type]
    least = [claim.probability or 0 for claim in promised.claims if claim.accepted]
    calibration = own_calibration(sample.model, "cell")
    assert calibration
    assert min(least) >= (calibration.thresholds["0.9"] or 1)
    assert every.counts.filled > promised.counts.filled > 0
    with pytest.raises(KbqError, match=r"has no threshold for a precision of 0.8: choose 0\.9$"):
        sample.fill(rows, wanted, precision=0.8)
    replace(calibration, thresholds={"0.9": None}).write(tmp_path / "c.json")
    with pytest.raises(KbqError, match="no thres"):
        sample.fill(rows, wanted, precision=0.9, calibration=tmp_path / "c.json")


def test_what_is_there_is_checked_against_the_text(sample: KnowledgeBase, people: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"subject": "Marie Curie", "date of birth": "1867", "place of birth": "WARSAW | Paris"},
        {"subject": "Galileo Galilei", "date of birth": "1700", "place of birth": ""},
        {"subject": "Zork Blah", "date of birth": "1900", "place of birth": None},
    ]
    out = people.with_name("verdicts.csv")
    table = sample.fill(rows, ["date of birth", "place of birth"], out, check=True)
    assert [
        (row["subject"], row["present"], row["verdict"], row["value"]) for row in table.rows
    ] == [
        ("Marie Curie", "1867", "agrees", "7 November 1867"),
        ("Marie Curie", "WARSAW", "agrees", "Warsaw"),
        ("Marie Curie", "Paris", "also said", "Warsaw"),
        ("Galileo Galilei", "1700", "contradicts", "15 February 1564"),
        ("Zork Blah", "1900", "not found", None),
    ]
    assert (
        out.read_text()
        .splitlines()[2]
        .startswith("Marie Curie,place of birth,WARSAW,agrees,Warsaw,0.9")
    )


def test_dates_are_written_as_wanted(sample: KnowledgeBase) -> None:
    rows = [{"subject": "Marie Curie"}]
    values = [
        sample.fill(rows, ["date of birth"], dates=dates).rows[0]["date of birth"]
        for dates in ("text", "iso", "edtf")
    ]
    assert values == ["7 November 1867", "1867-11-07", "1867-11-07"]
    with pytest.raises(KbqError, match="dates 'us' is unknown: choose from text, iso, edtf"):
        sample.fill(rows, ["date of birth"], dates="us")  # type: ignore[arg-type]


def test_a_data_frame_is_filled(sample: KnowledgeBase) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"subject": ["Marie Curie", None], "place of birth": [None, "x"]})
    table = sample.fill(frame, ["place of birth"])
    assert table.to_pandas()["place of birth"].tolist() == ["Warsaw", "x"]


def test_every_page_is_a_subject(sample: KnowledgeBase) -> None:
    few = sample.with_pages(["S001", "S013"])
    table = few.fill(None, ["place of birth"])
    assert table.rows == [
        {"page_id": "S001", "subject": "Marie Curie", "place of birth": "Warsaw"},
        {"page_id": "S013", "subject": "Isaac Newton", "place of birth": "Woolsthorpe"},
    ]


def test_a_dry_run_asks_a_few_and_writes_nothing(sample: KnowledgeBase, people: Path) -> None:
    table = sample.fill(people, ["place of birth", "employer"], subject="name", dry_run=True)
    assert (table.counts.cells, table.counts.queries, table.claims) == (5, 5, ())
    assert 0 < (table.counts.seconds or 0) < 60
    assert [path.name for path in people.parent.iterdir()] == ["people.csv"]


def test_what_may_be_mistyped_is_said(sample: KnowledgeBase, people: Path) -> None:
    said: list[str] = []
    sample.fill(
        people, ["plase of birth", "Place_of_birth"], subject="name", limit=1, note=said.append
    )
    assert said == [
        "the table has no column 'plase of birth', so it is added: did you mean 'place of birth'?",
        "no page has the word 'plase' of 'plase of birth'",
        "the table has no column 'Place_of_birth', so it is added: did you mean 'place of birth'?",
        "'Place_of_birth' is P19, of type page, as `kbq relations` prints; a file relations.toml "
        "may say otherwise",
    ]


def test_a_column_may_have_other_capitals_and_blanks(sample: KnowledgeBase) -> None:
    rows = [{"Name": "Marie Curie", " Place of  Birth": "", "employer": ""}]
    table = sample.fill(rows, ["place of birth", "employer", "date of brith"], note=unheard)
    assert table.columns == ("Name", " Place of  Birth", "employer", "date of brith")
    assert table.rows[0][" Place of  Birth"] == "Warsaw"
    said: list[str] = []
    sample.fill(rows, ["date of brith"], limit=1, note=said.append)
    advice = "no page has the word 'brith' of 'date of brith': did you mean 'date of birth'?"
    assert advice in said


def test_a_subject_that_cannot_be_asked_for_stays_as_it_is(sample: KnowledgeBase) -> None:
    rows = [
        {"subject": "a b " * 2500},
        {"subject": "x [SEP] y"},
        {"subject": "Marie\nCurie"},
        {"subject": ""},
    ]
    table = sample.fill(rows, ["place of birth"])
    assert [row.get("place of birth") for row in table.rows] == [None, None, "Warsaw", None]
    assert [problem.split("'")[0] for problem in table.counts.unasked] == [
        "row 1: the query ",
        "row 2: the query ",
    ]
    with pytest.raises(KbqError, match="no subject can be asked for"):
        sample.fill(rows[:2], ["place of birth"])


def test_names_that_say_little_and_relations_never_seen_fill_nothing(
    sample: KnowledgeBase,
) -> None:
    subjects = ["U.S.", "X", "of the", "居里夫人", "(.*)+[a-z]{3}", "C++ (river)", "Zork Blah"]
    table = sample.fill([{"subject": subject} for subject in subjects], ["place of birth"])
    assert [claim.subject for claim in table.claims if not claim.accepted] == subjects
    said: list[str] = []
    table = sample.fill([{"subject": "Marie Curie"}], ["grzmot"], note=said.append)
    assert (table.counts.queries, table.counts.filled) == (1, 0)
    assert said == ["no page has the word 'grzmot' of 'grzmot'"]


def test_two_hundred_relations_at_once_are_each_answered_as_alone(
    judging_kb: KnowledgeBase,
) -> None:
    relations = [f"{word} {number}" for word in ("river", "city") for number in range(100)]
    rows = [{"subject": "Marie"}]
    table = judging_kb.fill(rows, relations, min_probability=0, top=0)
    assert (table.counts.queries, len(table.claims)) == (200, 200)
    for chosen in (0, 99, 199):
        alone = judging_kb.fill(rows, relations[chosen : chosen + 1], min_probability=0, top=0)
        assert alone.claims == table.claims[chosen : chosen + 1]


def test_decisions_are_kept(sample: KnowledgeBase, write_json_lines: Callable[..., Path]) -> None:
    rows = [{"subject": "Marie Curie"}, {"subject": "Isaac Newton"}]
    path = write_json_lines(
        "d.jsonl",
        {
            "subject": "Marie Curie",
            "relation": "place of birth",
            "value": "warsaw",
            "decision": "reject",
        },
        {
            "subject": "Isaac Newton",
            "relation": "record label",
            "value": "Trinity College",
            "decision": "accept",
        },
    )
    table = sample.fill(rows, ["place of birth", "record label"], decisions=path)
    assert table.rows[0].get("place of birth") is None
    assert table.rows[1]["record label"] == "Trinity College"


# Runs that are killed


@pytest.fixture
def many(judging_kb: KnowledgeBase, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Fills a table of two and a half batches into a file."""
    monkeypatch.setattr(searcher, "BATCH", BATCH)
    monkeypatch.setattr(tables_fill, "BATCH", BATCH)

    def fill(
        out: Path,
        report: FillReport = unheard,
        relations: Any = ("place", "river"),
        rows: int = 5 * BATCH // 4,
        **options: Any,
    ) -> Any:
        several = [{"subject": f"Marie {number}"} for number in range(rows)]
        return judging_kb.fill(
            several, relations, out, min_probability=0.0, report=report, **options
        )

    return fill


def stopping_after(slots: int) -> FillReport:
    def stop(done: int, total: int, filled: int) -> None:
        if done >= slots:
            raise Killed

    return stop


@pytest.mark.parametrize("torn", [b"", b'{"query": "Marie 7 [SEP]'])
def test_a_killed_run_goes_on_with_the_same_bytes(
    torn: bytes, many: Callable[..., Any], tmp_path: Path
) -> None:
    many(tmp_path / "whole.csv")
    out = tmp_path / "out.csv"
    (tmp_path / "out.answers.jsonl").touch()  # of a run that was killed at once
    for slots in (0, BATCH // 2, BATCH):
        with pytest.raises(Killed):
            many(out, stopping_after(slots))
        assert not out.exists()
        with out.with_name("out.answers.jsonl").open("ab") as file:
            file.write(torn)
    table = many(out)
    assert table.counts.queries - table.counts.asked == 2 * BATCH
    for name in ("{}.csv", "{}.claims.jsonl", "{}.answers.jsonl"):
        assert (tmp_path / name.format("out")).read_bytes() == (
            tmp_path / name.format("whole")
        ).read_bytes()
    again = many(out)
    assert (again.counts.filled, again.counts.asked) == (5 * BATCH // 2, 0)


@pytest.mark.parametrize(
    ("changed", "asked"),
    [
        ({"top": 1}, 0),
        ({"limit": 7}, 0),
        ({"values": "many"}, 0),
        ({"relations": ["place"]}, 0),
        ({"relations": ["place", "river", "ridge"]}, 5 * BATCH // 4),
        ({"rows": 5 * BATCH // 4 + 3}, 6),
    ],
)
def test_only_what_is_new_is_asked(
    changed: dict[str, Any], asked: int, many: Callable[..., Any], tmp_path: Path
) -> None:
    many(tmp_path / "out.csv")
    table = many(tmp_path / "out.csv", **changed)
    anew = many(tmp_path / "anew.csv", **changed)
    assert (table.counts.asked, anew.counts.asked) == (asked, anew.counts.queries)
    assert table.claims == anew.claims
    for suffix in ("csv", "claims.jsonl"):
        assert (tmp_path / f"out.{suffix}").read_bytes() == (
            tmp_path / f"anew.{suffix}"
        ).read_bytes()


def test_another_format_asks_nothing(many: Callable[..., Any], tmp_path: Path) -> None:
    first = many(tmp_path / "out.csv")
    for suffix in ("jsonl", "tsv"):
        assert many(tmp_path / f"out.{suffix}").counts.asked == 0
    assert many(tmp_path / "out.csv").claims == first.claims


def test_a_table_with_decisions_beside_another_asks_nothing_again(
    many: Callable[..., Any], tmp_path: Path, write_json_lines: Callable[..., Path]
) -> None:
    many(tmp_path / "out.csv", rows=3)
    (tmp_path / "other.run.json").write_text("[")  # of somebody else
    line = {"subject": "Marie 1", "relation": "place", "value": "typed", "decision": "accept"}
    decisions = write_json_lines("decisions.jsonl", line)
    reviewed = many(tmp_path / "reviewed.csv", rows=3, decisions=decisions)
    assert (reviewed.counts.asked, reviewed.rows[1]["place"]) == (0, "typed")
    assert many(tmp_path / "again.csv", rows=4, decisions=decisions).counts.asked == 2
    (tmp_path / "elsewhere").mkdir()
    assert many(tmp_path / "elsewhere" / "out.csv", rows=3, decisions=decisions).counts.asked == 6


@pytest.mark.parametrize("killed", [True, False])
def test_answers_to_another_question_are_not_used(
    killed: bool, many: Callable[..., Any], tmp_path: Path
) -> None:
    out = tmp_path / "out.csv"
    if killed:
        with pytest.raises(Killed):
            many(out, stopping_after(BATCH))
    else:
        many(out)
    files = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(
        KbqError,
        match=r"run that differs in reranker or calibration \(see out\.run\.json\): choose",
    ):
        many(out, rerank=3)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == files
    assert many(out, rerank=3, force=True).counts.asked == 5 * BATCH // 2
    with pytest.raises(KbqError, match="reranker or calibration"):
        many(out)


def test_a_knowledge_base_that_has_grown_is_noticed(
    judging_model: Path, pages: list[Any], tmp_path: Path
) -> None:
    kb = KnowledgeBase.build(pages[:4], tmp_path / "kb", judging_model, device="cpu")
    rows, out = [{"subject": "Marie"}], tmp_path / "out.jsonl"
    with pytest.raises(Killed):
        kb.fill(rows, ["river"], out, min_probability=0.0, report=stopping_after(1))
    kb = KnowledgeBase.build(pages[4:6], tmp_path / "kb", append=True, device="cpu")
    with pytest.raises(
        KbqError, match=r"out\.answers\.jsonl was made by a run that differs in knowledge base"
    ):
        kb.fill(rows, ["river"], out, min_probability=0.0)


def test_a_file_that_was_changed_by_hand_is_kept(many: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    many(out)
    out.write_text("mine")
    with pytest.raises(
        KbqError,
        match=r"out\.csv was changed after kbq fill had written it: choose another out=…, or",
    ):
        many(out, top=1)
    assert out.read_text() == "mine"
    assert many(out, force=True).counts.asked == 0
    assert out.read_text().startswith("subject,place,river")


def test_the_table_itself_is_not_overwritten(sample: KnowledgeBase, people: Path) -> None:
    with pytest.raises(KbqError, match=r"people\.csv is the table itself: choose another out=…"):
        sample.fill(people, ["employer"], people, subject="name", force=True)


@pytest.mark.parametrize("name", ["out.csv", "out.claims.jsonl", "out.answers.jsonl"])
def test_a_file_of_somebody_else_is_left_alone(
    name: str, many: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(
        KbqError, match=rf"{name} already exists and was not made by kbq: choose another"
    ):
        many(tmp_path / "out.csv")
    assert (tmp_path / name).read_text() == "mine"


def test_damaged_files_of_a_run_are_named(many: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    with pytest.raises(Killed):
        many(out, stopping_after(BATCH))
    answers = tmp_path / "out.answers.jsonl"
    answers.write_bytes(b"{}\n" + answers.read_bytes())
    with pytest.raises(
        KbqError, match=r"out\.answers\.jsonl:1 is damaged: delete the file to ask again"
    ):
        many(out)
    (tmp_path / "out.run.json").write_text("[")
    with pytest.raises(
        KbqError, match=r"out\.run\.json is damaged .*: choose another out=…, or say force=…"
    ):
        many(out)
    assert many(out, force=True).counts.asked == 5 * BATCH // 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"subject": "name"},
            "the table has no column 'name' (it has 'subject'): name the column of subjects with",
        ),
        ({"subject": "subjct"}, "the table has no column 'subjct' (did you mean 'subject'?): name"),
        (
            {"relations": ["subject"]},
            "'subject' is the column of subjects, and cannot be filled itself",
        ),
        ({"relations": []}, "no relation is given"),
        ({"values": "some"}, "values 'some' is unknown: choose from one, many"),
        ({"top": -1}, "top is -1, must be at least 0"),
        (
            {"precision": 0.9},
            "min_probability and precision are two thresholds: leave one of them out",
        ),
        ({"precision": 90}, "precision is 90, must be a number from 0 to 1"),
        ({"overwrite": True, "check": True}, "check changes no cell, so overwrite has no effect"),
        ({"backend": "bm25"}, "BM25 finds no phrase"),
        (
            {"out": "out.nt"},
            "RDF, QuickStatements and the page for review are exports: see `kbq export`",
        ),
        (
            {"out": "out.xyz"},
            "out.xyz ends like no table: end it in .csv, .tsv, .tab, .jsonl, .ndjson, .json, "
            ".parquet",
        ),
    ],
)
def test_what_has_no_meaning_is_refused(
    options: dict[str, Any], said: str, many: Callable[..., Any], tmp_path: Path
) -> None:
    out = tmp_path / options.pop("out", "out.csv")
    with pytest.raises(KbqError) as caught:
        many(out, **options)
    assert said in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_table(many: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "out.csv").mkdir()
    with pytest.raises(KbqError, match=r"out\.csv is a folder: give out=… the name of a file"):
        many(tmp_path / "out.csv")
    assert [path.name for path in tmp_path.rglob("*")] == ["out.csv"]


def test_without_probabilities_a_threshold_is_refused(judging_kb: KnowledgeBase) -> None:
    with pytest.raises(KbqError, match="answers have no probability here"):
        judging_kb.fill([{"subject": "Marie"}], ["river"])


def test_a_full_disk_is_said(
    many: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kbq.tables.run.AnswerCache.add", full)
    with pytest.raises(
        KbqError, match=r"out\.answers\.jsonl cannot be written \(No space left on device\): free"
    ):
        many(tmp_path / "out.csv")


def test_json_lines_have_lists_of_values(sample: KnowledgeBase, tmp_path: Path) -> None:
    rows = [{"subject": "Marie Curie", "nested": {"a": [1]}}]
    sample.fill(rows, ["place of birth"], tmp_path / "out.jsonl", values="many")
    line = json.loads((tmp_path / "out.jsonl").read_text("utf-8"))
    assert line == {"subject": "Marie Curie", "nested": {"a": [1]}, "place of birth": ["Warsaw"]}


def test_claims_become_rdf_quickstatements_and_a_page(
    sample: KnowledgeBase, tmp_path: Path
) -> None:
    rows, relations = [{"subject": "Marie Curie"}], tmp_path / "relations.toml"
    relations.write_text(
        '["place of birth"]\nproperty = "P19"\n["record label"]\nproperty = "P264"\n'
    )
    ids = tmp_path / "ids.tsv"
    ids.write_text("S001\tQ7186\nWarsaw\tQ270\n")
    sample.fill(rows, [str(relations)], tmp_path / "out.csv", command="kbq fill …")
    assert (tmp_path / "out.csv").read_text(
        "utf-8"
    ) == "subject,place of birth,record label\nMarie Curie,Warsaw,\n"
    claims = tmp_path / "out.claims.jsonl"
    counts = [
        kbq.export(claims, to, tmp_path / f"out.{to}", ids=ids) for to in ("rdf", "quickstatements")
    ]
    assert [(one.claims, one.accepted, one.left_out) for one in counts] == [(2, 1, 0), (2, 1, 0)]
    wikidata = "<http://www.wikidata.org/{}>".format
    fact = f"{wikidata('entity/Q7186')} {wikidata('prop/direct/P19')} {wikidata('entity/Q270')} ."
    assert (tmp_path / "out.rdf").read_text("utf-8") == fact + "\n"
    assert (
        (tmp_path / "out.quickstatements")
        .read_text("utf-8")
        .startswith("Q7186\tP19\tQ270\tS1683\ten:")
    )
    kbq.export(claims, "long", tmp_path / "long.csv")
    assert (
        (tmp_path / "long.csv")
        .read_text("utf-8")
        .startswith("subject,relation,value,probability,accepted")
    )
    kbq.export(claims, "review", tmp_path / "out.html")
    page = (tmp_path / "out.html").read_text("utf-8")
    assert '"value": "Warsaw"' in page
    assert '"command": "kbq fill …"' in page
    kbq.export(claims, "rdf", tmp_path / "out.nt")  # without ids
    assert wikidata("prop/direct/P19") + " <urn:kbq:thing:Warsaw> ." in (
        tmp_path / "out.nt"
    ).read_text("utf-8")


@pytest.fixture(scope="module")
def smiths(tmp_path_factory: pytest.TempPathFactory) -> KnowledgeBase:
    """Two pages of one name."""
    born = {"P1": "London in 1900", "P2": "Chicago in 1950"}
    pages = [
        kbq.Page(page_id, "John Smith", [f"John Smith was a painter. He was born in {place}."])
        for page_id, place in born.items()
    ]
    return KnowledgeBase.build(pages, tmp_path_factory.mktemp("smiths") / "kb")


@pytest.mark.parametrize(
    ("accepted", "expected"),
    [
        ([], ["London", "Chicago"]),
        (["London"], ["London", "Chicago"]),
        (["Chicago"], ["London", "Chicago"]),
        (["London", "Chicago"], ["London", "Chicago"]),
        ([""], ["", ""]),
        (["Boston"], ["Boston", "Boston"]),  # who typed it named no page
        (["Boston", "London"], ["London", "Chicago"]),
        (["London", "Boston"], ["Boston", "Boston"]),
    ],
)
def test_a_decision_on_a_value_holds_for_the_page_that_it_was_found_on(
    smiths: KnowledgeBase, accepted: list[str], expected: list[str], tmp_path: Path
) -> None:
    cell = {"subject": "John Smith", "relation": "place of birth", "decision": "accept"}
    decisions = tmp_path / "decisions.jsonl"
    decisions.write_text("".join(json.dumps(cell | {"value": one}) + "\n" for one in accepted))
    rows = [{"page_id": page_id, "subject": "John Smith"} for page_id in ("P1", "P2")]
    table = smiths.fill(rows, ["place of birth"], min_probability=0.0, decisions=decisions)
    assert [row.get("place of birth", "") for row in table.rows] == expected
