"""KILT: predictions in, the leaderboard's scores, their reasons and upload-ready files out.

Imports neither torch nor faiss: useful for the predictions of any system. Read `evaluation.py` first.
Source: arXiv 2009.02252; the semantics are those of the official evaluation at commit 2664322.
"""
