"""KILT: predictions of any system become the leaderboard's scores, the reasons for them, and files ready to upload.

Ask       task.py, adapters.py        a benchmark: how its input becomes a query, what its answer is
          prediction.py               inputs become prediction lines (needs a knowledge base)
Read      records.py                  lines or dicts become gold records and predictions, all problems gathered
Score     text_scores.py, metrics.py  one prediction against its gold record
          scores.py                   all of them: a table of numbers and its means
          evaluation.py               `kbq evaluate`: start here
Analyse   analysis.py                 intervals, groups, comparisons, where points are lost
          error_kinds.py              `kbq errors`: why a prediction is wrong
          passages.py, trec.py        retrieved texts; TREC files and measures
          confidence.py               probabilities against which answers are right: scores, promises
          calibration.py              the same, of predictions
Report    report.py, plots.py         tables, pictures
Check     checks.py, validation.py    `kbq validate`: one line, a whole file, and its repair
Submit    submission.py, lines.py     `kbq merge` and `submit`; how files are written

All but prediction.py load neither torch nor faiss. Source: arXiv 2009.02252; the semantics are those of the official
evaluation at commit 2664322.
"""
