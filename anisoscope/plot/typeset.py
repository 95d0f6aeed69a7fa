"""Typeset the formulas of quantities, which tables hold as plain text, for a browser."""

import re
from html import escape

TYPESET_SIGNS = {
    "lambda": "λ",
    "eta": "η",
    "pi": "π",
    "sum": "Σ",
    "sqrt": "√",
    "+-": "±",
    "...": "…",
}
WORD = re.compile(r"\b(lambda|eta|pi|sum|sqrt)(?![a-z])|\+-|\.\.\.")
INDEX = r"_(\{[^}]*\}|\([^)]*\)|\*|\w+)"
# a letter takes any index; a bar and a word take one letter, since names have underscores too
LETTER = re.compile(rf"(?<![A-Za-z])([A-Za-zλΣη]){INDEX}")
OTHER = re.compile(r"(\||\b(?:max|min|mean|median|var|softmax|HSIC))_([\w*](?!\w))")
ABOVE = re.compile(r"\^(\{[^}]*\}|\([^)]*\)|-?\w+)")


def typeset(formula: str) -> str:
    """Return a formula as HTML with Greek letters, indices and powers; `<` is escaped.

    >>> typeset("max(lambda) / sum(lambda_i^2)")
    'max(λ) / Σ(λ<sub>i</sub><sup>2</sup>)'
    """
    text = WORD.sub(lambda found: TYPESET_SIGNS[found[0]], formula)
    text = escape(text.replace("<=", "≤"), quote=False)
    for below in (LETTER, OTHER):
        text = below.sub(lambda found: f"{found[1]}<sub>{found[2].strip('{}')}</sub>", text)
    return ABOVE.sub(lambda found: f"<sup>{found[1].strip('{}')}</sup>", text)
