"""Entity linking: a mention between [START_ENT] and [END_ENT]; the answer is the title of the page
it refers to.
"""

from kbq.kilt.task import Task, mention


def _linking(name: str, **lines: int) -> Task:
    metrics = ("accuracy", "KILT-accuracy")
    return Task(name, mention, answer="title", metrics=metrics, ranked="KILT-accuracy", lines=lines)


TASKS = (
    _linking("aidayago2", dev=4_784, test=4_463),
    _linking("wned", dev=3_396, test=3_376),
    _linking("cweb", dev=5_599, test=5_543),
)
