"""KILT: predictions of any system become the leaderboard's scores, the reasons for them, and files ready to upload.

All but prediction.py load neither torch nor faiss. Source: arXiv 2009.02252; the semantics are those of the official
evaluation at commit 2664322. `kbq evaluate`: start at evaluation.py.
"""
