"""KILT: the predictions of any system, scored as the leaderboard does.

All but prediction.py load neither torch nor faiss. Source: arXiv 2009.02252; the semantics are
those of the official evaluation at commit 2664322. `kbq evaluate`: start at evaluation.py.
"""
