"""What earlier versions called otherwise, {name then: name now}: on the command line and in files.

docs/reference/glossary.md ends with the words.
"""

import pathlib
from typing import Any

from anisoscope.utils.errors import UserError

SETTINGS = {
    "vectors.groups": "vectors.clusters",
    "measure.groups": "measure.folds",
    "measure.sites": "measure.hook_points",
    "tangents.groups": "tangents.folds",
    "mesh.members": "mesh.seeds",
}
EXPERIMENTS = {
    "mask_laboratory": "mask_ablations",
    "norm_laboratory": "norm_ablations",
    "optimizer_laboratory": "optimizer_ablations",
    "positions_laboratory": "position_ablations",
    "twins_small": "matched_pair_small",
}
STAGES = {"equal": "matched"}
AXES = {"gain": "context_gain"}  # --over
AT = {"equal": "matched"}  # of a primary contrast
SCORES = {"gain": "context_gain"}  # train.jsonl, test.json, crossings.json
QUANTITIES = {  # of tables and contrasts
    "validation_gain": "validation_context_gain",
    "test_gain": "test_context_gain",
    "valid_gain": "valid_context_gain",
    "steps_to_gain": "steps_to_context_gain",
    "gain_there": "context_gain_there",
    "bell": "middle_less_ends",
    "largest_sink_heads": "largest_block_sink_heads",
}
VERDICTS = {"not decided": "inconclusive", "no change beyond the margin": "equivalent"}  # of primary.csv
FILES = {
    "equal_gain": "loss_matched",
    "contrasts_equal_gain.csv": "contrasts_loss_matched.csv",
    "equal_gain.csv": "loss_matched.csv",
    "equal_gain.json": "loss_matched.json",
}


def refuse(what: str, name: str, names: dict[str, str]) -> None:
    """Raise UserError, with the name of today, where this is one of before."""
    if name in names:
        raise UserError(f"{what}: {name!r} is called {names[name]!r} now")


def keys(values: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """As of today; what a file has under both names has the value of today's."""
    return {names.get(name, name): value for name, value in values.items() if names.get(name) not in values}


def settings(values: Any) -> Any:
    """Settings by dotted name; what is damaged as it is."""
    return keys(values, SETTINGS) if isinstance(values, dict) else values


def column(name: str) -> str:
    """Of runs.csv, where a quantity may have its set of positions behind it."""
    quantity = name.removesuffix("_without_first")
    return QUANTITIES.get(quantity, quantity) + name[len(quantity) :]


def place(folder: pathlib.Path, name: str) -> pathlib.Path:
    """folder/name; where it is there under an earlier name alone, that."""
    then = next((folder / then for then, now in FILES.items() if now == name), folder / name)
    return then if then.exists() and not (folder / name).exists() else folder / name


def primary(contrasts: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Contrasts that the experiment of an earlier version called primary."""
    names = {"at": AT, "quantity": QUANTITIES}
    if not (isinstance(contrasts, dict) and all(isinstance(one, dict) for one in contrasts.values())):
        return contrasts  # damaged: who reads it says so
    return {
        name.replace("bell_", "middle_less_ends_", 1) if name.startswith("bell_") else name: {
            field: names.get(field, {}).get(value, value) for field, value in one.items()
        }
        for name, one in contrasts.items()
    }
