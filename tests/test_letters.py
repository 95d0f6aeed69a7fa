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


def names(tree):
    """Of arrays that carry letters: `x_BTD`, and in them what stands behind the last underscore."""
    for node in ast.walk(tree):
        name = {ast.Name: "id", ast.arg: "arg", ast.Attribute: "attr"}.get(type(node))
        found = name and re.fullmatch(r"[a-z]\w*_([0-9]?[A-Z][A-Z0-9]*)", getattr(node, name))
        if found:
            yield found[0], found[1]


def shapes(annotation):
    """The strings of jaxtyping in an annotation."""
    for node in ast.walk(annotation):
        if isinstance(node, ast.Subscript) and getattr(node.value, "id", "") in TYPES:
            yield ast.literal_eval(node.slice.elts[-1])


def typed(tree):
    """Names with letters beside the shape that they are annotated with."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            name = node.arg if isinstance(node, ast.arg) else getattr(node.target, "id", "")
            found = re.fullmatch(r"[a-z]\w*?_([0-9]?[A-Z][A-Z0-9]*)", name)
            if found and not any(
                isinstance(part, ast.Name) and part.id == "tuple"
                for part in ast.walk(node.annotation)
            ):
                yield from ((name, found[1], shape) for shape in shapes(node.annotation))


def letters(shape):
    return re.findall(r"(?<![a-z{])[A-Z](?![a-z}])", shape)


def test_letters_are_those_of_the_table_and_free_ones_are_said_at_the_head():
    for file in FILES:
        tree = ast.parse((ROOT / file).read_text())
        used = {letter for _, suffix in names(tree) for letter in suffix if letter.isalpha()}
        used |= {letter for shape in shapes(tree) for letter in letters(shape)}
        assert used <= set(ROWS), file
        said = set(re.findall(r"\b[A-Z]\b", ast.get_docstring(tree) or ""))
        assert used & FREE <= said, f"{file}: its docstring must explain these letters"


def test_a_name_has_the_letters_of_its_annotation():
    for file in FILES:
        for name, suffix, shape in typed(ast.parse((ROOT / file).read_text())):
            whole = [
                dimension for dimension in shape.split() if not dimension.startswith(("*", "..."))
            ]
            assert "".join(whole) == suffix or set("".join(whole)) & set("_{"), (
                f"{file}: {name}: {shape!r}"
            )
