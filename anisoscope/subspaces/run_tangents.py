"""The stage on a run of ours: its checkpoints read by one compiled program, and by the training's
own next step.
"""

import contextlib
import functools
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from anisoscope.config.experiment_config import Config
from anisoscope.config.run_config import checkpoint_steps, seeds
from anisoscope.config.tangents_config import early_steps
from anisoscope.data.corpus import Corpus
from anisoscope.sources import provenance
from anisoscope.sources.run_source import Checkpoints
from anisoscope.subspaces import scored_windows, tangent_stage, tangent_tables, weight_gradients
from anisoscope.subspaces.proxies import Frames
from anisoscope.subspaces.tangent_limits import width_of
from anisoscope.subspaces.tangent_program import Program, make_program
from anisoscope.subspaces.tangent_stage import EARLY
from anisoscope.subspaces.tested_proxies import FITS, Tested
from anisoscope.training import checkpoint
from anisoscope.training.objective import OBJECTIVES
from anisoscope.training.replay import NextStep
from anisoscope.utils.settings import to_dict
from anisoscope.utils.stop import Stop


def check_windows_and_tables(config: Config, corpus: Corpus, run: pathlib.Path) -> None:
    """Raise UserError, before any work is done, where the run could not be read later or tables are
    of others.
    """
    scored_windows.make_windows(config, config.tangents, corpus)
    tangent_stage.refuse_others(
        run / "tangents", tangent_tables.made_by(config.tangents, corpus.sha256)
    )


def fit_early(config: Config, corpus: Corpus, run: pathlib.Path, name: str, stop: Stop) -> None:
    """tangents/early.nc: see subspaces/tangent_stage.py."""
    with _fitting(config, corpus, run, name, stop) as fitting:
        tangent_stage.fit_early(fitting, config.tangents, stop)


def sweep(
    config: Config,
    corpus: Corpus,
    run: pathlib.Path,
    name: str,
    stop: Stop,
    other: pathlib.Path | None,
) -> None:
    """tangents/<step>.nc of every checkpoint, then tangents.nc. `other` is the run of another seed,
    if any.
    """
    with _fitting(config, corpus, run, name, stop) as fitting:
        tangent_stage.sweep(
            fitting, config.tangents, stop, None if other is None else other / "tangents" / EARLY
        )


@contextlib.contextmanager
def _fitting(
    config: Config, corpus: Corpus, run: pathlib.Path, name: str, stop: Stop
) -> Iterator[tangent_stage.Fitting]:
    kept = checkpoint_steps(config)

    @functools.cache
    def program() -> Program:  # where there is something to do
        return make_program(config, config.tangents, corpus)

    with contextlib.closing(checkpoint.Checkpoints(run / "checkpoints", kept)) as store:

        @functools.cache
        def update() -> NextStep:
            return NextStep(config, corpus, store)

        def test(step: int, before: int | None, frames: dict[str, Frames]) -> Tested:
            params = store.restore_params(step)
            there = before in store.steps()
            between = (
                weight_gradients.change(store.restore_params(before), params) if there else None
            )
            single = weight_gradients.rows(weight_gradients.take(update().change(step)))
            nothing = jax.tree.map(lambda x: np.full_like(x, np.nan), single)
            return program().test(params, frames, {"between": between or nothing, "step": single})

        yield tangent_stage.Fitting(
            source=Checkpoints(config, corpus, run, name, kept, store, stop),
            where=str(run / "checkpoints"),
            steps=kept,
            early=early_steps(config, config.tangents),
            fits=FITS,
            layers=config.model.layers + 1,
            width=width_of(config.model),
            cloud=lambda step: program().activations(store.restore_params(step)),
            fit=lambda cloud_NPD: program().fit(cloud_NPD),
            test=test,
            attributes=attributes(config, corpus, name),
            cells=primary(config),
        )


def primary(config: Config) -> list[tuple[int, int, int]]:
    steps, early = (
        checkpoint_steps(config),
        early_steps(config, config.tangents),
    )
    return tangent_stage.primary(config.model.layers, steps, early, config.tangents.ranks[-1])


def attributes(config: Config, corpus: Corpus, name: str) -> dict[str, Any]:
    """What every table says about where its numbers come from."""
    tangents, objective = config.tangents, OBJECTIVES[config.objective]
    return provenance.of_run(config, corpus, name) | {
        "input": f"validation windows as in training (predicts {objective.label}), model applied in float32",
        "positions": "scored ones: those that the loss counts",
        "width": width_of(config.model),
        **tangent_tables.sampled(tangents),
        "early_steps": json.dumps(early_steps(config, tangents)),
        "primary": json.dumps(primary(config)),
        "made_by": tangent_tables.made_by(tangents, corpus.sha256),
    }


def other_seed(name: str, configs: dict[str, Config]) -> str | None:
    """The next run, round and round, that differs in its seeds alone and has another weight seed,
    if any.

    One of the same data seed comes before one of another.
    """

    def without_seeds(config: Config) -> Any:
        values = to_dict(config)
        return values | {
            "train": {key: value for key, value in values["train"].items() if "seed" not in key}
        }

    def data_seed(run: str) -> int:
        return seeds(configs[run].train)[0][1]

    alike = [
        one
        for one, config in configs.items()
        if without_seeds(config) == without_seeds(configs[name])
    ]
    at = alike.index(name)
    others = [
        one
        for one in alike[at:] + alike[:at]
        if configs[one].train.seed != configs[name].train.seed
    ]
    return min(others, key=lambda one: data_seed(one) != data_seed(name), default=None)
