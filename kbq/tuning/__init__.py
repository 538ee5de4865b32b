"""Query-side fine-tuning: triples teach the query encoder a new kind of query; the phrase dump stays as it is."""
