"""Density: a statement has one thought, and a comment beside code begins with a noun or a verb."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "kbq").rglob("*.py"))
MOST_NODES = 60
BLOCKS = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.With, ast.AsyncWith),
    *(ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.TryStar, ast.Match),
)
HEADLESS = re.compile(
    r"(of|in|on|at|by|for|from|with|without|to|that|which|who|whose|where|whatever|as|than|under|over|after|before"
    r"|between|among|beside|behind|if|so|not|never|no|until|since|per|into)\b"
)
FOR_TOOLS = re.compile(r"noqa|type:|fmt:")


def comments_beside_code(path: Path) -> Iterator[tuple[int, str]]:
    text = path.read_text("utf-8")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_beside = token.type == tokenize.COMMENT and token.line[: token.start[1]].strip()
        if is_beside and not FOR_TOOLS.search(token.string):
            yield token.start[0], token.string.lstrip("# ")


def test_statements_have_air() -> None:
    """Measured elsewhere: httpx, pylate and spacy-llm have 4 nodes a line."""
    texts = [path.read_text("utf-8") for path in FILES]
    lines = [line for text in texts for line in text.splitlines()]
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    statements = [node for node in nodes if isinstance(node, ast.stmt)]
    pairs = [node for node in statements if is_tuple_assignment(node)]
    assert len(nodes) / len(lines) <= 6.5
    assert sum(len(line) > 100 for line in lines) / len(lines) <= 0.01
    assert len(pairs) / len(statements) <= 0.005


def is_tuple_assignment(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Assign):
        return False
    return isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple)


def test_no_statement_has_more_than_sixty_nodes() -> None:
    dense = []
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.stmt) and not isinstance(node, BLOCKS):
                nodes = sum(1 for _ in ast.walk(node))
                if nodes > MOST_NODES:
                    dense.append(
                        f"{path.relative_to(ROOT)}:{node.lineno} has {nodes} nodes: give its "
                        "parts names"
                    )
    assert dense == []


def test_comments_beside_code_begin_with_a_noun_or_a_verb() -> None:
    comments = [(path, *comment) for path in FILES for comment in comments_beside_code(path)]
    headless = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path, line, text in comments
        if HEADLESS.match(text)
    ]
    assert len(comments) > 100
    assert len(headless) <= 0.03 * len(comments), headless
