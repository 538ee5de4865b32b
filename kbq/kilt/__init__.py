"""KILT: score the predictions of any system as the leaderboard does, explain the scores, and package uploads.

All but prediction.py load neither torch nor faiss. Source: arXiv 2009.02252; the semantics are those of the official
evaluation at commit 2664322. `kbq evaluate`: start at evaluation.py.
"""
