"""English: the rules that another language would change, with their tables.

Two stand where they are used: stop words and stems in `words/bm25.py`, articles in
`text/answer_scores.py`.
"""
