"""Every system of the papers on a tiny random model: are block outputs and attention the model's
own?

    .venv-pretrained/bin/python -m tests.sources.hf.rows [NAME …]

A system is a `Row` (row.py) under its name: the class of transformers, the settings that make it
tiny, what stands beside it, and what it reads. Rows of text are in text.py, those of pictures and
sound in modalities.py.
"""

import sys

import transformers

from tests.sources.hf.rows import modalities, text
from tests.sources.hf.rows.row import Row, show

ROWS = text.ROWS
HEAD = (
    "| system | class of transformers | layers | block outputs | attention | |",
    "| --- | --- | --- | --- | --- | --- |",
)


def line(name: str, row: Row) -> str:
    if row.model is None:
        cells = [name, f"no class in transformers {transformers.__version__}", "", "", "", row.said]
    else:
        shown = show(row)
        attention = "none" if shown.attention is None else number(shown.attention)
        cells = [name, row.model, str(shown.layers), number(shown.streams), attention, row.said]
    return "|".join(["", *(f" {cell} " if cell else " " for cell in cells), ""])


def number(difference: float) -> str:
    return f"{difference:.0e}" if difference else "0"


def main(names: list[str]) -> None:
    for words in HEAD:
        print(words)
    for name, row in (ROWS | modalities.ROWS).items():
        if not names or name in names:
            print(line(name, row), flush=True)


if __name__ == "__main__":
    transformers.utils.logging.set_verbosity_error()
    main(sys.argv[1:])
