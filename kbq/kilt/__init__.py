"""KILT: predictions in, the leaderboard's scores, their reasons and upload-ready files out.

    evaluation.py   the official scores of two files: start here (`kbq evaluate` is reporting/summary.py)
    commands.py     what `kbq validate`, `errors`, `submit` and `passages` do
    reading/        files become records, every problem gathered
    scoring/        records become numbers
    reporting/      numbers become tables, breakdowns, comparisons, and reasons
    submitting/     prediction files are checked, repaired, merged and packaged

Imports neither torch nor faiss: useful for the predictions of any system.
Source: arXiv 2009.02252; the semantics are those of the official evaluation at commit 2664322.
"""
