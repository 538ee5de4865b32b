"""ROUGE-L as the official evaluation computes it: summary level, over sets of words, on the text as it is.

Equal to `rouge-l` of the package `rouge` 1.0 without its recursion, which fails on answers of 1,000 words.
"""


def rouge_l(guess: str, gold: str) -> float:
    """F score, slightly below 1 for a perfect match; 0 where either text has no sentence.

    >>> rouge_l("a a b", "a b")
    0.999999995
    """
    guess_sentences, gold_sentences = sentences(guess), sentences(gold)
    if not guess_sentences or not gold_sentences:
        return 0.0
    guess_words = {word for sentence in guess_sentences for word in sentence}
    gold_words = {word for sentence in gold_sentences for word in sentence}
    shared: set[str] = set()
    for gold_sentence in gold_sentences:
        for guess_sentence in guess_sentences:
            shared |= common_words(gold_sentence, guess_sentence)
    precision = len(shared) / len(guess_words)
    recall = len(shared) / len(gold_words)
    return 2.0 * ((precision * recall) / (precision + recall + 1e-8))


def sentences(text: str) -> list[list[str]]:
    """The words of each sentence; a sentence of blanks only is one empty word.

    >>> sentences("St. Ives")
    [['St'], ['Ives']]
    """
    return [piece.split() or [""] for piece in text.split(".") if piece]


def common_words(gold: list[str], guess: list[str]) -> set[str]:
    """The words of one longest common subsequence; of several, the one that the official walk back finds."""
    known = set(gold)
    guess = [word for word in guess if word in known]  # other words change neither the table nor the walk
    if not guess:
        return set()
    lengths = subsequence_lengths(gold, guess)
    words: set[str] = set()
    row, column = len(gold), len(guess)
    while row and column:
        if gold[row - 1] == guess[column - 1]:
            words.add(gold[row - 1])
            row, column = row - 1, column - 1
        elif lengths[row - 1][column] > lengths[row][column - 1]:
            row -= 1
        else:
            column -= 1
    return words


def subsequence_lengths(gold: list[str], guess: list[str]) -> list[list[int]]:
    """Length of the longest common subsequence of every two prefixes.

    Shape: (gold words + 1, guess words + 1).
    """
    present = set(guess)
    lengths = [[0] * (len(guess) + 1)]
    for word in gold:
        above = lengths[-1]
        if word not in present:
            lengths.append(above)
            continue
        row = [0]
        for column, other in enumerate(guess):
            row.append(above[column] + 1 if word == other else max(above[column + 1], row[column]))
        lengths.append(row)
    return lengths
