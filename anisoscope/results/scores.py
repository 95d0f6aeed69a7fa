"""Scores of a run at each checkpoint, read from its log as variables over `step`."""

from typing import Any

import numpy as np
import xarray as xr

from anisoscope.training import log

LOGGED = {  # name in a line of train.jsonl: name in a table, in words
    "bits_per_character": ("validation_bits", "bits per predicted character, validation windows"),
    "context_free_bits": (
        "validation_context_free_bits",
        "bits of the objective's best answer without context, on the same characters",
    ),
    "gain_over_unigram": (
        "validation_gain_over_unigram",
        "gain over unigram: bits of the best answer without context minus bits of the model, validation",
    ),
    "mask_bits": ("validation_mask_bits", "bits per character under [MASK], validation windows"),
    "error_windows": (
        "validation_error_windows",
        "standard error of the validation bits, were the windows drawn anew",
    ),
    "error_masks": (
        "validation_error_masks",
        "standard error of the validation bits, were the masked characters of these windows drawn anew",
    ),
}


def scores(lines: list[dict[str, Any]], steps: list[int]) -> xr.Dataset:
    """Make variables over these steps; NaN at steps without a validation."""
    valid = {line["step"]: line for line in lines if line["kind"] == "valid"}
    variables = {}
    for key, (name, words) in LOGGED.items():
        values = [float(valid.get(step, {}).get(key, np.nan)) for step in steps]
        if np.isfinite(values).any():
            variables[name] = ("step", values, {"long_name": words, "units": "bit"})
    if skipped := [line["step"] for line in lines if line["kind"] == log.SKIPPED]:
        counts = [sum(skip <= step for skip in skipped) for step in steps]
        words = "updates skipped up to this step, since loss or gradient was not finite"
        variables["skipped_updates"] = ("step", counts, {"long_name": words, "units": "1"})
    return xr.Dataset(variables, {"step": list(steps)})
