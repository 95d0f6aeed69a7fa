"""The caption of a figure: what it shows, and the text, model, seeds and sample behind it."""

from collections.abc import Sequence
from typing import Any

import xarray as xr
from matplotlib.figure import Figure

from anisoscope.analysis import run_summaries
from anisoscope.models import model_settings
from anisoscope.plot import style
from anisoscope.plot.run_tables import Run, format_seeds
from anisoscope.training.objective import OBJECTIVES
from anisoscope.training.optimizer import OPTIMIZERS

IN_FACTS = (  # settings that `_facts` puts in words, as the description of the model does
    *("objective", "train.optimizer", "train.steps", "train.seed", "train.data_seed"),
    *("measure.points", "measure.batches", "measure.weighting", "pretrained.name"),
)
FEW = 2  # runs whose differences have room on the figure itself
IN_CAPTION = "What differs between the runs stands in the caption beside this figure."


def caption(
    figure: Figure, runs: dict[str, Run], shown: str, bands: str = "", further: Sequence[str] = ()
) -> None:
    """Write on the figure its bands and the shared facts; the full caption is its label."""
    shared, own = provenance(runs)
    differences = ".  ".join(own) if len(runs) <= FEW else IN_CAPTION
    style.add_footer(figure, [line for line in (bands, shared, differences) if line])
    figure.set_label("\n".join([f"{shown} {bands}".strip(), *further, "", shared, *own]))


def provenance(runs: dict[str, Run]) -> tuple[str, list[str]]:
    """Return the facts that all runs share, and a line for each run with its differences."""
    settings = {label: _settings(run.results) for label, run in runs.items()}
    facts = {}
    for label, run in runs.items():
        # without the settings that differ, two curves would bear one caption
        facts[label] = _facts(run.results) + [
            f"{name}={value}"
            for name, value in settings[label].items()
            if any(other.get(name) != value for other in settings.values())
        ]
    first = next(iter(facts.values()))
    shared = [fact for fact in first if all(fact in own for own in facts.values())]
    own = {label: [fact for fact in own if fact not in shared] for label, own in facts.items()}
    return "; ".join(shared), [f"{label}: {'; '.join(rest)}" for label, rest in own.items() if rest]


def _settings(results: xr.Dataset) -> dict[str, Any]:
    """Return the settings of a run that `_facts` does not name, by dotted name."""
    in_facts = {*IN_FACTS, *(f"model.{name}" for name in model_settings.described_fields())}
    return {
        name: value
        for name, value in run_summaries.settings(results).items()
        if name not in in_facts and not name.startswith("data.")
    }


def _facts(results: xr.Dataset) -> list[str]:
    attrs = results.attrs
    if "provenance" in attrs:  # of a model that was not trained here
        sample = f"{attrs['points']:,} points × {attrs['batches']} batches"
        return [*attrs["provenance"].split("; "), *[sample] * bool(attrs["batches"] > 1)]
    steps, last = f"{attrs['steps']:,}", f"{results.step.values[-1]:,}"
    return [
        str(attrs["corpus"]),
        *str(attrs["model"]).split(", "),
        f"predicts {OBJECTIVES[attrs['objective']].label}",
        OPTIMIZERS[run_summaries.settings(results).get("train.optimizer", "adamw")].label,
        f"{last} steps" if last == steps else f"step {last} of {steps}",
        attrs["seeds"] if "seeds" in attrs else format_seeds([run_summaries.seeds(results)]),
        attrs.get("sample", f"{attrs['points']:,} points × {attrs.get('batches', 1)} batches"),
        *["positions drawn so that characters weigh alike"] * ("weighting" in attrs),
        *["reads masked windows"] * ("masked as in training" in attrs.get("input", "")),
    ]
