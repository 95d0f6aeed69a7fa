"""Draw the pictures of docs/gallery.md, and list them there with their code.

    PYTHONPATH=. .venv/bin/python docs/site/gallery_pictures.py [PART OF A NAME …]    # by default all

The site draws the same scripts anew; tests/docs/test_gallery.py holds the list current.
"""

import ast
import os
import pathlib
import runpy
import sys

GALLERY = pathlib.Path(__file__).parents[1] / "gallery"
PAGE, PICTURES = GALLERY.with_suffix(".md"), GALLERY / "pictures"
SIZE, DPI = 150_000, 90  # the largest file, and dots per inch
HEAD = "Each is drawn by its code, from a table of this repository or from an array."


def read_scripts() -> dict[pathlib.Path, tuple[str, str]]:
    """Read the title and the words of each script."""
    found = {}
    for path in sorted(GALLERY.glob("[0-9]*.py")):
        title, _, words = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")
        found[path] = title, " ".join(words.partition("\n\n")[2].split())
    return found


def write_page() -> str:
    """Write the list: of each script title, words, picture and code."""
    scripts = read_scripts()
    models = sum("models" in path.stem or "real_models" in path.read_text() for path in scripts)
    lines = [
        "# Figures, each with its code",
        "",
        f"{HEAD} {models} of {len(scripts)} are of pretrained models.",
    ]
    for path, (title, words) in scripts.items():
        picture = f"![{title}](gallery/pictures/{path.stem}.png)"
        lines += ["", f"## {title}", "", f"{words} [Code](gallery/{path.name})", "", picture]
    return "\n".join([*lines, ""])


def draw(path: pathlib.Path) -> None:
    """Run a script in the look of the site, and write its last figure."""
    import looks
    import matplotlib.pyplot as plt

    looks.reset({}, path.name)
    runpy.run_path(str(path))
    plt.gcf().savefig(PICTURES / f"{path.stem}.png", dpi=DPI, metadata={"Software": None})
    plt.close("all")


def main(parts: list[str]) -> None:
    import matplotlib

    matplotlib.use("agg")
    PICTURES.mkdir(exist_ok=True)
    os.chdir(GALLERY)  # as the site runs them
    for path in read_scripts():
        if not parts or any(part in path.stem for part in parts):
            print(path.stem, flush=True)
            draw(path)
    PAGE.write_text(write_page())


if __name__ == "__main__":
    main(sys.argv[1:])
