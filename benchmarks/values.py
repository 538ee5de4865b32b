"""Values: which texts of a data set have a normal form, how many that are no dates have one, and what a text costs.

    python benchmarks/values.py KNOWLEDGENET TREX_DEV [--name values]

KNOWLEDGENET is facts.jsonl.xz: values of relations that are called DATE_… are dates, no other value is one. Answers of
TREX_DEV, a KILT file, are neither dates nor quantities. A quantity in them would be shown.
"""

import argparse
import time
from pathlib import Path

import reporting

from kbq.storage.lines import read_json_lines
from kbq.tables.values import normal_form


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("knowledgenet", type=Path)
    parser.add_argument("trex", type=Path)
    parser.add_argument("--name", default="values")
    options = parser.parse_args()
    facts = [fields for _, fields in read_json_lines(str(options.knowledgenet)) if fields["object"]]
    dates = [str(fact["object"]) for fact in facts if str(fact["property"]).startswith("DATE")]
    others = [str(fact["object"]) for fact in facts if not str(fact["property"]).startswith("DATE")]
    answers = [
        str(output["answer"])
        for _, fields in read_json_lines(str(options.trex))
        for output in fields["output"]  # type: ignore[attr-defined]
        if output.get("answer")
    ]
    begun = time.process_time()
    formless = sorted({text for text in dates if normal_form(text, "date") is None})
    seconds = time.process_time() - begun
    figures = {
        "dates": len(dates),
        "with a form": sum(normal_form(text, "date") is not None for text in dates),
        "without": formless,
        "microseconds a text": round(1e6 * seconds / len(dates), 1),
        "no dates": len(others) + len(answers),
        "with a form by mistake": sorted({text for text in (*others, *answers) if normal_form(text)}),
    }
    reporting.write(options.name, figures, [options.knowledgenet, options.trex])


if __name__ == "__main__":
    main()
