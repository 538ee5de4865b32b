"""Random queries: the words that texts and slots of random knowledge bases are made of."""

import random

WORDS = (
    "the", "city", "river", "was", "born", "in", "of", "Paris", "Warsaw", "Marie", "Curie", "place",
    "birth",
)  # fmt: skip


def random_queries(count: int, seed: int) -> list[str]:
    source = random.Random(seed)
    queries = []
    for _ in range(count):
        subject = " ".join(source.choices(WORDS, k=source.randint(1, 6)))
        relation = " ".join(source.choices(WORDS, k=2))
        queries.append(f"{subject} [SEP] {relation}")
    return queries
