"""Run the stage `tangents` on our checkpoints, by one compiled program and the next training step."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array

from anisoscope.config.experiment_config import Config
from anisoscope.config.model_config import ModelConfig
from anisoscope.config.run_config import OBJECTIVE_LABELS, checkpoint_steps, seed_pairs
from anisoscope.config.tangents_config import TangentsConfig, early_steps
from anisoscope.data.corpus import Corpus
from anisoscope.models import transformer
from anisoscope.models.masks import visible_keys
from anisoscope.results import step_files
from anisoscope.sources.run_program import share_program
from anisoscope.sources.run_source import RunSource, run_attributes
from anisoscope.subspaces import tangent_gradients, tangent_stage, tangent_tables
from anisoscope.subspaces.subspace_energy import Frames, Tested, fit_and_test
from anisoscope.subspaces.tangent_gradients import (
    TangentWindows,
    choose_tangent_windows,
    read_width,
    stream_basis,
)
from anisoscope.subspaces.tangent_quantities import FITS
from anisoscope.training.checkpoint import CheckpointReader
from anisoscope.training.train_program import make_train_program
from anisoscope.utils import mesh
from anisoscope.utils.folder import digest_run
from anisoscope.utils.settings import to_dict


def check_windows_and_tables(config: Config, corpus: Corpus, run: pathlib.Path) -> None:
    """Raise UserError before any work where the run cannot be read or other tables exist."""
    choose_tangent_windows(config, config.tangents, corpus)
    made_by = tangent_tables.made_by(config.tangents, corpus.sha256)
    step_files.check_folder(run / step_files.TANGENTS, made_by)


class NextStep:
    """The next update of any checkpoint, by the program that trains, on one device."""

    def __init__(self, config: Config, corpus: Corpus, store: CheckpointReader):
        self.program = make_train_program(config, corpus, mesh.first_device_mesh())
        self.store = store

    def change(self, at: int) -> Any:
        """Compute what the next update adds to the parameters of this checkpoint, in NumPy."""
        state = self.store.restore(at, self.program.abstract)
        before = jax.tree.map(np.asarray, state.params)
        after, _ = self.program.run(self.program.stack([state]), 1)
        return jax.tree.map(lambda new, old: np.asarray(new)[0] - old, after.params, before)


class RunStudy(tangent_stage.TangentSource):
    """The checkpoints of a run; windows and programs are made at first use."""

    fits = FITS

    def __init__(
        self,
        config: Config,
        corpus: Corpus,
        run: pathlib.Path,
        name: str,
        other: pathlib.Path | None = None,
    ):
        identity = digest_run(config, corpus.sha256)
        self.steps = checkpoint_steps(config)
        self.store = CheckpointReader(run / "checkpoints", run=identity)
        super().__init__(RunSource(config, corpus, run, name, self.steps, self.store))
        self.config, self.corpus, self.tangents = config, corpus, config.tangents
        self.other = other
        self.early = early_steps(config, config.tangents)
        self.layers, self.width = config.model.layers + 1, read_width(config.model)
        self.made_by = tangent_tables.made_by(config.tangents, corpus.sha256)
        label = OBJECTIVE_LABELS[config.objective]
        self.about_model = run_attributes(config, corpus, name) | {
            "input": f"validation windows as in training (predicts {label}), model applied in float32",
            "width": self.width,
        }
        self.visible_TT = np.asarray(visible_keys(config.model, config.model.context))

    @functools.cached_property
    def windows(self):
        return choose_tangent_windows(self.config, self.tangents, self.corpus)

    @property
    def to_test(self) -> TangentWindows:
        return self.windows[1]

    @functools.cached_property
    def update(self) -> NextStep:
        return NextStep(self.config, self.corpus, self.store)

    @functools.cached_property
    def programs(self) -> tuple[Callable, Callable]:
        model = dataclasses.replace(share_program(self.config.model), dtype="float32")
        return make_programs(model, self.tangents, self.corpus.vocab_size)

    def cloud(self, step: int) -> Array:
        params = self.store.restore_params(step)
        return self.programs[0](params, self.windows[0], self.visible_TT)

    def test(self, step: int, before: int | None, frames: dict[str, Frames]) -> Tested:
        params = self.store.restore_params(step)
        taken = tangent_gradients.collect_matrices(self.update.change(step))
        step_rows = tangent_gradients.matrix_rows(taken)
        if before in self.store.steps():
            between = tangent_gradients.parameter_update(self.store.restore_params(before), params)
        else:
            between = jax.tree.map(lambda x: np.full_like(x, np.nan), step_rows)
        updates = {"step": step_rows, "between": between}
        arguments = self.windows, self.visible_TT, frames, updates
        return jax.device_get(self.programs[1](params, *arguments))


@functools.cache
def make_programs(
    model: ModelConfig, tangents: TangentsConfig, vocab_size: int
) -> tuple[Callable, Callable]:
    """Compile the reading of states and testing, for runs that share model and settings.

    Masks and objectives are arguments of the programs.
    """
    network = transformer.build(model, vocab_size, "float32")
    basis_DD = stream_basis(model.width, read_width(model))

    def activations(params: Any, windows: tuple, visible_TT: Array) -> Array:
        return tangent_gradients.activations(network, params, windows, visible_TT, basis_DD)

    def test(params: Any, windows: tuple, visible_TT: Array, frames: dict, updates: dict) -> Tested:
        to_fit, to_test = windows
        cloud_NPD = activations(params, to_fit, visible_TT)
        read = tangent_gradients.compute_gradients(network, params, to_test, visible_TT, basis_DD)
        return fit_and_test(cloud_NPD, read, to_test, basis_DD, frames, updates, tangents)

    exact = jax.default_matmul_precision("highest")
    return jax.jit(exact(activations)), jax.jit(exact(test))


def other_seed(name: str, configs: dict[str, Config]) -> str | None:
    """Return the next run, cyclically, that differs only in seeds and has another weight seed.

    Runs with the same data seed come first.
    """

    def without_seeds(config: Config) -> Any:
        values = to_dict(config)
        kept = {key: value for key, value in values["train"].items() if "seed" not in key}
        return values | {"train": kept}

    def data_seed(run: str) -> int:
        return seed_pairs(configs[run].train)[0][1]

    settings, weight_seed = without_seeds(configs[name]), configs[name].train.seed
    names = list(configs)
    at = names.index(name)
    others = [
        run
        for run in names[at:] + names[:at]
        if configs[run].train.seed != weight_seed and without_seeds(configs[run]) == settings
    ]
    return min(others, key=lambda run: data_seed(run) != data_seed(name), default=None)
