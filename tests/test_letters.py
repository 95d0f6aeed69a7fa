"""Shape letters: docs/reference/letters.md is their table, and the source keeps to it."""

import ast
import pathlib
import re

ROOT = pathlib.Path(__file__).parent.parent
TABLE = (ROOT / "docs" / "reference" / "letters.md").read_text()
ROWS = dict(re.findall(r"^\| ([A-Z]) \| (.+?) \|$", TABLE, re.MULTILINE))
FIXED = {letter for letter, meaning in ROWS.items() if not meaning.startswith("free")}
FREE = set(ROWS) - FIXED
TYPES = {"Float", "Int", "UInt", "Bool", "Key"}
FILES = sorted(
    str(path.relative_to(ROOT))
    for folder in ("metrics", "models", "anisoscope")
    for path in (ROOT / folder).rglob("*.py")
)


SUFFIX = re.compile(r"[a-z]\w*?_([0-9]?[A-Z][A-Z0-9]*)")


def suffixes(tree):
    """Letters in names of arrays, of what stands behind the last underscore: `x_BTD`."""
    for node in ast.walk(tree):
        name = {ast.Name: "id", ast.arg: "arg", ast.Attribute: "attr"}.get(type(node))
        if name and (found := SUFFIX.fullmatch(getattr(node, name))):
            yield found[1]


def shapes(annotation):
    """The strings of jaxtyping in an annotation."""
    for node in ast.walk(annotation):
        if isinstance(node, ast.Subscript) and getattr(node.value, "id", "") in TYPES:
            yield ast.literal_eval(node.slice.elts[-1])


def test_letters_are_those_of_the_table_and_free_ones_are_said_at_the_head():
    for file in FILES:
        tree = ast.parse((ROOT / file).read_text())
        text = " ".join([*suffixes(tree), *shapes(tree)])
        used = set(re.findall(r"(?<![a-z{])[A-Z](?![a-z}])", text))
        assert used <= set(ROWS), file
        said = set(re.findall(r"\b[A-Z]\b", ast.get_docstring(tree) or ""))
        assert used & FREE <= said, f"{file}: its docstring must explain these letters"


def test_a_name_has_the_letters_of_its_annotation():
    for file in FILES:
        for node in ast.walk(ast.parse((ROOT / file).read_text())):
            found = isinstance(node, ast.arg) and node.annotation and SUFFIX.fullmatch(node.arg)
            for shape in shapes(node.annotation) if found else ():
                letters = "".join(x for x in shape.split() if not x.startswith(("*", "...")))
                assert letters == found[1] or {*letters} & {*"_{"}, f"{file}: {node.arg}: {shape}"
