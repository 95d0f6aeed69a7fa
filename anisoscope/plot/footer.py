"""The caption of a figure: what it shows, and what it was made from: text, model, steps, seeds,
sample of every run.
"""

from collections.abc import Sequence
from typing import Any

import xarray as xr
from matplotlib.figure import Figure

from anisoscope.analysis import run_summaries as tables
from anisoscope.models import description
from anisoscope.plot import style
from anisoscope.plot.run_tables import Run
from anisoscope.training.objective import OBJECTIVES
from anisoscope.training.optimizer import OPTIMIZERS

TOLD = (  # beside what the description of the model tells
    *("objective", "train.optimizer", "train.steps", "train.seed", "train.data_seed"),
    *("measure.points", "measure.batches", "measure.weighting", "pretrained.name"),
)


FEW = 2  # so many runs are told apart on the figure itself
BESIDE = "What differs between the runs stands in the caption beside this figure."


def caption(
    figure: Figure, runs: dict[str, Run], shown: str, bands: str = "", further: Sequence[str] = ()
) -> None:
    """On the figure what its bands are and what all runs share; beside it, by its label, the whole
    caption.
    """
    shared, own = provenance(runs)
    apart = ".  ".join(own) if len(runs) <= FEW else BESIDE
    lines = [line for line in (bands, shared, apart) if line]
    style.small_print(figure, lines)
    figure.set_label(
        "\n".join([" ".join(part for part in (shown, bands) if part), *further, "", shared, *own])
    )


def provenance(runs: dict[str, Run]) -> tuple[str, list[str]]:
    """The facts that all runs share, and a line for each run of what it has beside them."""
    settings = {label: _settings(run.results) for label, run in runs.items()}
    facts = {
        label: _facts(run.results)
        + [f"{name}={value}" for name, value in _differing(label, settings).items()]
        for label, run in runs.items()
    }
    shared = [
        fact for fact in next(iter(facts.values())) if all(fact in own for own in facts.values())
    ]
    own = {label: [fact for fact in own if fact not in shared] for label, own in facts.items()}
    return "; ".join(shared), [f"{label}: {'; '.join(rest)}" for label, rest in own.items() if rest]


def _settings(results: xr.Dataset) -> dict[str, Any]:
    """The settings of a run by dotted name, but for those that `_facts` tells in words."""
    settings = tables.settings(results)
    names_in_facts = {*TOLD, *(f"model.{name}" for name in description.described_fields())}
    return {
        name: value
        for name, value in settings.items()
        if name not in names_in_facts and not name.startswith("data.")
    }


def _differing(label: str, settings: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What this run sets otherwise than one of the others does: without it, two curves would bear
    one caption.
    """
    own = settings[label]
    return {
        name: value
        for name, value in own.items()
        if any(other.get(name) != value for other in settings.values())
    }


def _facts(results: xr.Dataset) -> list[str]:
    attrs = results.attrs
    if "provenance" in attrs:  # of a model that was not trained here
        sample = [f"{attrs['points']:,} points × {attrs['batches']} batches"] * bool(
            attrs["batches"] > 1
        )
        return [*attrs["provenance"].split("; "), *sample]
    reached = f"{results.step.values[-1]:,}"
    return [
        str(attrs["corpus"]),
        *str(attrs["model"]).split(", "),
        f"predicts {OBJECTIVES[attrs['objective']].label}",
        # tables of old have no other
        OPTIMIZERS[tables.settings(results).get("train.optimizer", "adamw")].label,
        f"{reached} steps"
        if reached == f"{attrs['steps']:,}"
        else f"step {reached} of {attrs['steps']:,}",
        attrs["seeds"] if "seeds" in attrs else seeds_in_words([tables.seeds(results)]),
        attrs.get("sample", f"{attrs['points']:,} points × {attrs.get('batches', 1)} batches"),
        *(["positions drawn so that characters weigh alike"] * ("weighting" in attrs)),
        *(["reads masked windows"] * ("masked as in training" in attrs.get("input", ""))),
    ]


def seeds_in_words(pairs: list[tuple[int, int]]) -> str:
    """Seeds of the initial parameters and of the data, told apart where they differ."""
    weights, data = (sorted(set(kind)) for kind in zip(*pairs, strict=True))
    said = [", ".join(map(str, kind)) for kind in (weights, data)]
    if all(one == other for one, other in pairs):
        return f"seed{'s' * (len(weights) > 1)} {said[0]}"
    return f"weight seed{'s' * (len(weights) > 1)} {said[0]} and data seed{'s' * (len(data) > 1)} {said[1]}"
