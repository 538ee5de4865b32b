"""Reranker losses: what was read in the windows of a query, and what is right there, become the losses of the reranker.

Phrases compete with each other and with "none of these is right", and so do the tokens around them. Source: arXiv
1710.10723 (paragraphs compete); arXiv 2012.12624, Eq. 5 (the share of all that is right).
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from kbq.model.windows import token_span
from kbq.reading.network import POINTS, PhraseJudge
from kbq.reading.phrase_windows import Excerpt, ReadWindow
from kbq.reading.reranker import answers_in, judged
from kbq.text.sentences import whole_words
from kbq.training.losses import distillation_loss, marginal_losses
from kbq.training.mined_queries import Label, MinedQuery


def query_losses(judge: PhraseJudge, query: MinedQuery, windows: Sequence[ReadWindow]) -> tuple[Tensor, Tensor]:
    """Return the losses of the phrases of one query, and of the tokens around them; scalars."""
    phrases = [phrase for window in windows for phrase in answers_in(window.excerpt, query.phrases)]
    labels = [query.label(phrase) for phrase in phrases]
    alone = judged(judge, windows)
    found = alone.new_tensor([phrase.score for phrase in phrases])
    scores = alone + judge.retrieval * (found - found.max()) / POINTS
    return phrase_loss(scores, labels), token_loss(query, windows, judge.none / 2, is_nothing_right(labels))


def taught_losses(
    judges: Sequence[PhraseJudge], query: MinedQuery, read: Sequence[Sequence[ReadWindow]]
) -> tuple[Tensor, Tensor]:
    """Return KL(larger reader ‖ reader) over the phrases found for a query and "none", and over all tokens and "none".

    `judges`: those of the reader and of the larger one. `read`: what both have read, in the same windows.
    """
    (own_phrases, own_tokens), (phrases, tokens) = (
        _said(judge, query, windows) for judge, windows in zip(judges, read, strict=True)
    )
    return (
        distillation_loss(own_phrases, phrases.detach(), torch.ones_like(own_phrases, dtype=torch.bool)),
        distillation_loss(own_tokens, tokens.detach(), torch.ones_like(own_tokens, dtype=torch.bool)),
    )


def _said(judge: PhraseJudge, query: MinedQuery, windows: Sequence[ReadWindow]) -> tuple[Tensor, Tensor]:
    """Return scores of the phrases that were found and of "none", and logits of all tokens and of "none".

    Shapes: (1, phrases + 1) and (2, tokens + 1).
    """
    numbers_of = [window.excerpt.numbers for window in windows]
    alone = torch.split(judged(judge, windows), [len(window.tokens) for window in windows])
    scores = torch.cat([part[: len(numbers)] for part, numbers in zip(alone, numbers_of, strict=True)])
    found = scores.new_tensor([query.phrases[number].score for numbers in numbers_of for number in numbers])
    scores = scores + judge.retrieval * (found - found.max()) / POINTS
    logits = torch.cat([window.logits for window in windows], dim=1)
    return (
        torch.cat([scores, scores.new_zeros(1)])[None],
        torch.cat([logits, (judge.none / 2).expand(2, 1)], dim=1),
    )


def is_nothing_right(labels: Sequence[Label]) -> bool:
    """Whether "none of these is right" is certainly right."""
    return all(label == "wrong" for label in labels)


def phrase_loss(scores: Tensor, labels: Sequence[Label]) -> Tensor:
    """Return -log of the share of the right phrases among all and "none"; 0 where it is not known what is right.

    `scores`: logarithms of odds against "none". Shape: (phrases,).

    >>> scores = torch.tensor([3.0, 1.0, 9.0]).log()
    >>> round(float((-phrase_loss(scores, ["right", "wrong", "elsewhere"])).exp()), 4)  # 3 of 3 + 1 + 1
    0.6
    >>> float(phrase_loss(scores, ["nearly", "wrong", "wrong"]))
    0.0
    """
    gold = [*(label == "right" for label in labels), is_nothing_right(labels)]
    takes_part = [*(label != "elsewhere" for label in labels), True]
    competing = torch.cat([scores, scores.new_zeros(1)])
    masks = (torch.tensor([mask], device=scores.device) for mask in (gold, takes_part))
    return marginal_losses(competing[None], *masks)[0]


def token_loss(query: MinedQuery, windows: Sequence[ReadWindow], none: Tensor, is_none: bool) -> Tensor:
    """Return -log of the share of the tokens that open answers among all tokens and "none", and of those that close.

    Windows of other pages in which an answer occurs take no part. The loss is 0 where there is nothing to choose.
    `none`: the logit of "none". Shape: (1,). `is_none`: whether "none" is right where no answer occurs.
    """
    logits = [none.expand(2, 1)]  # shapes: (2, tokens)
    golds = [torch.zeros(2, 1, dtype=torch.bool, device=none.device)]
    for window in windows:
        phrase = query.phrases[window.excerpt.numbers[0]]
        places = answer_places(query.answers, window.excerpt, phrase.context)
        if places and not query.is_on_page(phrase):
            continue
        gold = torch.zeros_like(window.logits, dtype=torch.bool)
        for first, last in places:
            gold[0, first] = gold[1, last] = True
        logits.append(window.logits)
        golds.append(gold)
    gold = torch.cat(golds, dim=1)
    gold[:, 0] = is_none and not gold.any()
    return marginal_losses(torch.cat(logits, dim=1), gold, torch.ones_like(gold)).mean()


def answer_places(answers: Iterable[str], excerpt: Excerpt, context: str) -> list[tuple[int, int]]:
    """Return first and last token of every answer in the text of a window of `context`, in any case."""
    begin, stop = int(excerpt.text.starts[0]), int(excerpt.text.ends[-1])
    text = context[begin:stop]
    return [
        token_span(excerpt.text, begin + start, begin + start + len(answer))
        for answer in answers
        if answer.strip()
        for start in whole_words(text, answer, in_any_case=True)
    ]
