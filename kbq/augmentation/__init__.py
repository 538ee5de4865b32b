"""New training examples from a corpus: generated questions, and slot queries from triples."""
