"""Code lines of a module: those that bear a token that is neither a comment nor part of a docstring."""

import ast
import functools
import io
import tokenize
from collections.abc import Iterator

_LAYOUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip

parse = functools.cache(ast.parse)
"""The tree of a source, kept for the tests that look at all of them."""


@functools.cache
def tokens(text: str) -> list[tokenize.TokenInfo]:
    return list(tokenize.generate_tokens(io.StringIO(text).readline))


@functools.cache
def code_lines(text: str) -> int:
    """Return the number of code lines.

    >>> code_lines('"Docstring."' + chr(10) * 2 + "# why" + chr(10) + "x = (1," + chr(10) + "  2)")
    2
    """
    docs = {line for each in _docstrings(parse(text)) for line in range(each.lineno, (each.end_lineno or 0) + 1)}
    code = [token for token in tokens(text) if token.type not in _LAYOUT]
    return len({line for token in code for line in range(token.start[0], token.end[0] + 1)} - docs)


def _docstrings(tree: ast.Module) -> Iterator[ast.Expr]:
    """Yield the strings that stand alone in the body of a module or class, or first in that of a function."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            body = node.body if isinstance(node, (ast.Module, ast.ClassDef)) else node.body[:1]
            for each in body:
                if (
                    isinstance(each, ast.Expr)
                    and isinstance(each.value, ast.Constant)
                    and isinstance(each.value.value, str)
                ):
                    yield each
