"""Run the stage `tangents` on a pretrained model: its requirements, windows and revisions."""

import functools
import hashlib
from typing import Any

import jax
import numpy as np

from anisoscope.config.pretrained_config import PretrainedConfig, revision_steps
from anisoscope.config.tangents_config import TangentsConfig, check_settings, early_among
from anisoscope.data import unigrams
from anisoscope.results import joined_files, step_files
from anisoscope.sources.hf import guards, load_model, revision_sweep, token_windows
from anisoscope.sources.hf.adapters import UNKNOWN, adapter_name, find_adapter
from anisoscope.sources.hf.revision_sweep import Revisions
from anisoscope.sources.sweep import check_measured, is_outdated, sweep
from anisoscope.subspaces import tangent_stage, tangent_tables
from anisoscope.subspaces.hf import torch_gradients
from anisoscope.subspaces.subspace_energy import Frames, Tested, fit_and_test
from anisoscope.subspaces.tangent_gradients import (
    LEAST_EARLY,
    NO_BIN,
    Gradients,
    TangentWindows,
    check_gradient_families,
    check_window_count,
    split_windows,
    stream_basis,
)
from anisoscope.subspaces.tangent_quantities import FITS
from anisoscope.training.objective import KEPT_SHARE, MASKED_SHARE, REPLACED_SHARE
from anisoscope.utils import folder
from anisoscope.utils.errors import UserError
from anisoscope.utils.processes import Stop
from anisoscope.utils.settings import replace

SAME_WIDTH = "the model's width of {}"
NO_OPTIMIZER = "NaN: it needs the state of the optimizer, which no file of weights has"
TANGENT_INPUT = {
    guards.NEXT_TOKEN: "validation windows (predicts the next token)",
    guards.MASKED_TOKEN: f"validation windows (predicts masked tokens, {MASKED_SHARE:.0%})",
}


def find_task(config: PretrainedConfig) -> str:
    """Return what the model is trained to predict; UserError where it has no gradients."""
    last = revision_sweep.last_location(config)
    settings = load_model.read_settings(last)
    class_name = load_model.find_class(settings, last.is_gguf).__name__
    task, reason = guards.head_task(class_name), ""
    if find_adapter(adapter_name(settings)) == UNKNOWN:
        reason = f"models of type {settings.model_type!r} have no entry in sources/hf/adapters.py"
    elif load_model.main_input(settings) != load_model.TOKENS:
        reason = f"{config.pretrained.name} reads no text, and predicts no tokens"
    elif task is None:
        reason = f"{class_name} has no head that predicts tokens: no loss, no gradient"
    if reason:
        raise UserError(f"tangents.enabled: {reason}; leave it out")
    check_gradient_families(config.tangents.families)
    check_settings(config.tangents, settings.hidden_size, SAME_WIDTH.format(settings.hidden_size))
    return task


def prepare_study(source: Revisions) -> "RevisionStudy":
    """Choose the windows; UserError where they cannot be scored, or other tables exist."""
    task, config = find_task(source.config), source.config
    if task == guards.MASKED_TOKEN and source.windows.mask_token is None:
        what = f"the tokenizer of {config.pretrained.name} has no mask token"
        raise UserError(f"tangents.enabled: {what}; leave it out")
    study = RevisionStudy(source, choose_text_windows(source.windows, config.tangents, task), task)
    step_files.check_folder(study.root / step_files.TANGENTS, study.made_by)
    return study


def choose_text_windows(
    windows: token_windows.InputWindows, tangents: TangentsConfig, task: str
) -> tuple[TangentWindows, TangentWindows]:
    """Choose windows of a text to fit to and to test on; UserError where there are too few.

    A token that begins or ends every window is read, but neither predicted nor in a bin of
    frequency.
    """
    rows_NT, fixed_T = windows.rows_NT, windows.fixed_T
    description = f"{len(rows_NT)} windows of {rows_NT.shape[1]} tokens"
    check_window_count(len(rows_NT), description, tangents)
    rng = np.random.default_rng(tangents.seed)
    text_WT = rows_NT[rng.permutation(len(rows_NT))[: 2 * tangents.windows]]
    if task == guards.NEXT_TOKEN:
        scored_T = np.append(~fixed_T[1:], False).astype(np.float32)
        scored_WT = np.broadcast_to(scored_T, text_WT.shape)
        batch = text_WT, np.roll(text_WT, -1, axis=1), scored_WT
    else:  # BERT's rule: some are masked, some replaced, some kept
        chosen_WT = (rng.random(text_WT.shape) < MASKED_SHARE) & ~fixed_T
        other_WT = rng.choice(np.flatnonzero(windows.counts_V), text_WT.shape)
        how_WT = rng.random(text_WT.shape)
        input_WT = np.where(how_WT < 1 - KEPT_SHARE, other_WT.astype(text_WT.dtype), text_WT)
        input_WT = np.where(how_WT < 1 - KEPT_SHARE - REPLACED_SHARE, windows.mask_token, input_WT)
        input_WT = np.where(chosen_WT, input_WT, text_WT).astype(np.int32)
        batch = input_WT, text_WT, chosen_WT.astype(np.float32)
    with np.errstate(divide="ignore"):  # tokens that do not occur in the text
        bins_V = unigrams.bins(np.log(windows.counts_V / windows.counts_V.sum()).astype(np.float32))
    bins_WT = bins_V[np.minimum(text_WT, len(bins_V) - 1)]
    bins_WT = np.where(fixed_T, NO_BIN, bins_WT).astype(np.int32)
    return split_windows((*batch, bins_WT), tangents, rng)


def measure_tangents(study: "RevisionStudy", stop: Stop) -> None:
    """Write tangents/<step>.nc of every revision, tangents.nc and tangents_primary.csv."""
    source, config = study.source, study.config
    check_measured(source)
    folder.claim_folder(source.root, replace(config, revision_sweep.FREE), new=False)
    with folder.locked_folder(source.root):
        facts = study.facts
        check_settings(config.tangents, study.width, SAME_WIDTH.format(facts["full_width"]))
        removed = "removed" if study.width < facts["full_width"] else "kept"
        share = f"share of the gradient {facts['largest_ones_share']:.1g}"
        print(f"{source.name}: vector of ones: {removed} ({share})")
        print(f"{source.name}: unknown matrices, which are NaN: {facts['matrices_missing']}")
        if study.rounded and len(study.steps) > 1:
            why = f"pretrained.dtype={config.pretrained.dtype} rounds weights"
            print(f"{source.name}: updates between revisions are NaN, since {why}")
        if not study.early:
            what = f"no early subspaces: they need {LEAST_EARLY} revisions of a model"
            print(
                f"{source.name}: {what} that are early (tangents.early_fraction), and a later one"
            )
        tangent_stage.fit_early(study, stop)
        sweep(study, stop)


class RevisionStudy(tangent_stage.TangentSource):
    """Revisions, read with torch and tested with one compiled program."""

    def __init__(
        self, source: Revisions, windows: tuple[TangentWindows, TangentWindows], task: str
    ):
        super().__init__(source)
        self.config, self.task = source.config, task
        self.batch_size = self.config.pretrained.batch_size
        # a weight may change by less than its rounding
        self.rounded = self.config.pretrained.dtype != "float32"
        self.tangents, (self.to_fit, self.to_test) = self.config.tangents, windows
        parts = self.to_fit.tokens_JWT, self.to_test.tokens_JWT
        tokens = b"".join(np.ascontiguousarray(tokens_JWT).tobytes() for tokens_JWT in parts)
        digest, sha256 = hashlib.sha256(tokens).hexdigest(), source.corpus.sha256
        self.made_by = tangent_tables.made_by(self.tangents, sha256, tokens_sha256=digest)
        self.steps = list(revision_steps(self.config.pretrained))
        last, several = max(self.steps), len(self.steps) > 1
        early = early_among(self.steps, last, self.tangents)
        self.early = early if len(early) >= LEAST_EARLY and early[-1] < last else []
        fits = {
            "early": bool(self.early),
            "here": True,
            "previous": several,
            "untrained": several and 0 in self.steps,
        }
        self.fits = tuple(fit for fit in FITS if fits.get(fit))

    @property
    def layers(self) -> int:
        return self.facts["layers"]

    @property
    def width(self) -> int:
        return self.facts["width"]

    @functools.cached_property
    def about_model(self) -> dict[str, Any]:
        """Describe the model and the windows that it reads."""
        source, sample = self.source, tangent_tables.sample_attributes(self.tangents)
        target = source.targets[0]
        measured = source.attributes(target, source.step_tables(target))
        attributes = source.make_plan(self.config.measure.families).attributes
        for name in {*source.windows.attributes} - {"tokens_per_byte"}:  # describes other windows
            attributes.pop(name, None)
        return attributes | {
            **self.facts,
            **sample,
            "model": measured["model"],
            "steps": max(self.steps),
            "provenance": f"{measured['provenance']}; {sample['sample']}",
            "input": TANGENT_INPUT[self.task],
            "types": "token",
            "frequency": "of tokens in the validation split that is read",
            "batches": 1,
            "single_step": NO_OPTIMIZER,
        }

    @functools.cached_property
    def facts(self) -> dict[str, Any]:
        """The facts that hold for all revisions: of the last, from its table or a fold of windows."""
        names = ("layers", "full_width", "width", "largest_ones_share", "matrices_missing")
        path = self.targets[0].path(self.source.last)
        if path.exists() and not is_outdated(table := joined_files.read_table(path), self.source):
            return {name: revision_sweep.to_python(table.attrs[name]) for name in names}
        loaded = self.open(self.source.last)
        width, matrices = (
            loaded.model.config.hidden_size,
            torch_gradients.collect_torch_matrices(loaded),
        )
        fields = self.to_test._asdict().items()
        fold = self.to_test._replace(**{name: x[:1] for name, x in fields if "J" in name})
        identity_DD = np.eye(width, dtype=np.float32)
        read = torch_gradients.compute_torch_gradients(loaded, fold, identity_DD, self.batch_size)
        share = torch_gradients.ones_share(read)
        missing = ", ".join(name for name in matrices if not matrices[name]) or "none"
        dimensions = width - torch_gradients.removes_ones(read, width)
        return dict(zip(names, (loaded.blocks + 1, width, dimensions, share, missing), strict=True))

    @functools.cached_property
    def basis_DD(self) -> np.ndarray:
        return stream_basis(self.facts["full_width"], self.width)

    def open(self, step: int) -> load_model.PretrainedModel:
        """Load a revision; UserError where its gradients or its loss are not usable."""
        tokens_T = self.to_test.tokens_JWT[0, 0]
        loaded = self.source.open(self.source.make_plan(self.config.measure.families), step)
        reason = ""
        if any(parameter.device.type == "meta" for parameter in loaded.model.parameters()):
            reason = "weights left on the disk have no gradients; leave pretrained.device_map out"
        elif self.task == guards.NEXT_TOKEN and guards.sees_later(loaded, tokens_T):
            reason = f"{loaded.class_name} sees the token that it is to predict; leave it out"
        if reason:
            raise UserError(f"tangents.enabled: {reason}")
        guards.check_final_norm(loaded, tokens_T)
        return loaded

    def cloud(self, step: int) -> np.ndarray:
        return self._states(self.open(step))

    def _states(self, loaded: load_model.PretrainedModel) -> np.ndarray:
        return torch_gradients.states(loaded, self.to_fit, self.basis_DD, self.batch_size)

    def test(self, step: int, before: int | None, frames: dict[str, Frames]) -> Tested:
        loaded, width = self.open(step), len(self.basis_DD)
        cloud_NPD = self._states(loaded)
        read = torch_gradients.compute_torch_gradients(
            loaded, self.to_test, self.basis_DD, self.batch_size
        )
        self._check_ones(read, step)
        if before is None or self.rounded:
            between = jax.tree.map(lambda x: np.full_like(x, np.nan), read.weights)
        else:
            models = self.open(before), loaded
            between = torch_gradients.revision_update(
                *map(torch_gradients.collect_torch_matrices, models), width
            )
            del models
        del loaded  # free memory for the program
        updates = {"between": between, "step": torch_gradients.missing_rows(width)}
        program = tangent_stage.compile_work(fit_and_test, self.tangents)
        tested = program(cloud_NPD, read, self.to_test, self.basis_DD, frames, updates)
        return jax.device_get(tested)

    def _check_ones(self, read: Gradients, step: int) -> None:
        """Raise UserError where the vector of ones, removed by the last revision, matters here."""
        width, dimensions = self.basis_DD.shape
        if dimensions < width and not torch_gradients.removes_ones(read, width):
            share, last = torch_gradients.ones_share(read), self.facts["largest_ones_share"]
            what = f"share of the gradient along the vector of ones: {share:.2g}, last {last:.2g}"
            raise UserError(f"step {step}: {what}; name revisions of one model")
