"""Other queries: they are readable, of other relations and kinds than what is tuned on, and the
same again.
"""

from kbq.kb import KnowledgeBase
from kbq.text.queries import mention_in, slot_of
from kbq.tuning.triples import RELATIONS, other_queries


def relations_of(queries: list[str]) -> set[str]:
    return {slot[1] for slot in map(slot_of, queries) if slot}


def made(
    kb: KnowledgeBase, tuned: list[str], count: int = 400, seed: int = 0, watched: bool = False
) -> list[str]:
    return other_queries(kb.searcher.shards, kb.model.query_tokenizer, tuned, count, seed, watched)


def test_about_half_are_slots_a_quarter_questions_a_quarter_mentions(kb: KnowledgeBase) -> None:
    queries = made(kb, ["Emma [SEP] author"])
    slots = [query for query in queries if slot_of(query)]
    mentions = [query for query in queries if mention_in(query)]
    assert len(queries) == 400
    assert 180 <= len(slots) <= 260
    assert 20 <= len(mentions) <= 120
    assert all(mention[1].strip() for mention in map(mention_in, mentions) if mention)
    assert all(kb.model.query_tokenizer.accepts(query) for query in queries)


def test_subjects_are_titles_and_phrases_of_the_text(kb: KnowledgeBase) -> None:
    (shard,) = kb.searcher.shards
    titles = {shard.titles[page] for page in range(len(shard.titles))}
    text = "\n".join(shard.texts[paragraph] for paragraph in range(len(shard.texts)))
    subjects = [slot[0] for slot in map(slot_of, made(kb, ["Emma [SEP] author"])) if slot]
    assert all(subject in titles or subject in text for subject in subjects)
    assert 0.3 < sum(subject in titles for subject in subjects) / len(subjects) < 0.8


def test_tuned_relations_are_left_out_however_they_are_written(kb: KnowledgeBase) -> None:
    tuned = [f"Emma [SEP] {relation.title()}" for relation in RELATIONS if relation != "author"]
    assert relations_of(made(kb, tuned)) == {"author"}


def test_the_kind_that_is_tuned_on_is_left_out(kb: KnowledgeBase) -> None:
    after_questions = made(kb, ["who wrote Emma?"])
    assert all(slot_of(query) or mention_in(query) for query in after_questions)
    after_mentions = made(kb, ["of [START_ENT] Emma [END_ENT] by"])
    assert not any(map(mention_in, after_mentions))


def test_watched_relations_are_not_learned(kb: KnowledgeBase) -> None:
    learned, watched = (
        relations_of(made(kb, ["who?"], 2000, watched=which)) for which in (False, True)
    )
    assert learned | watched == set(RELATIONS)
    assert not learned & watched
    assert len(watched) == 35


def test_equal_seeds_make_equal_queries(kb: KnowledgeBase) -> None:
    assert made(kb, ["who?"], 50) == made(kb, ["who?"], 50)
    assert made(kb, ["who?"], 50) != made(kb, ["who?"], 50, seed=1)


def test_relations_are_taken_again_if_all_are_tuned_on(kb: KnowledgeBase) -> None:
    tuned = [f"Emma [SEP] {relation}" for relation in RELATIONS]
    assert relations_of(made(kb, tuned)) <= set(RELATIONS)
    assert len(made(kb, tuned)) == 400


def test_a_relation_is_named_once() -> None:
    assert len(set(RELATIONS)) == len(RELATIONS) == 171
