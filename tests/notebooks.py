"""A notebook of examples/ is run cell by cell, as Jupyter does, without it."""

import base64
import json
from typing import Any

import matplotlib.pyplot as plt

from tests.program import ROOT

LARGEST = 60_000  # bytes of a stored figure


def run(name: str) -> dict[str, Any]:
    """Its names after the last cell. A last line that ends with a semicolon is code all the
    same.
    """
    space: dict[str, Any] = {}
    for cell in cells(name):
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), space)
    plt.close("all")
    return space


def cells(name: str) -> list[dict[str, Any]]:
    return json.loads((ROOT / "examples" / name).read_text())["cells"]


def figures(name: str) -> list[bytes]:
    """That are stored as outputs."""
    outputs = [output for cell in cells(name) for output in cell.get("outputs", ())]
    assert not any(output["output_type"] == "error" for output in outputs)
    shown = [
        output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", {})
    ]
    return [base64.b64decode(one) for one in shown]
