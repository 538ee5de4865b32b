"""Query-side fine-tuning: teach the query encoder new kinds of queries; the phrase dump stays as it
is.
"""
