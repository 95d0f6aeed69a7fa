"""One revision: its weights guarded, its windows read, and everything measured of them in one table."""

import json
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr

from panel import leading
from pretrained import guards, hidden_states, load
from pretrained.clamp import clamp
from pretrained.config import PretrainedConfig
from pretrained.extract import activations
from pretrained.residuals import Residuals, before, compared_with
from pretrained.windows import Windows
from sources import extracted
from sources.activations import Measured, inputs_of
from tables import leading_vectors, projection, raw

WORK, BASE = 3, 2e9  # memory of measuring: in multiples of the vectors of a batch, and bytes of the programs
PREVIOUS = "step of the revision that cka_previous and overlap_previous compare with; -1: none"


class Plan(NamedTuple):
    """What all revisions have in common."""

    config: PretrainedConfig  # with the families and null models to be measured
    windows: Windows
    name: str

    @property
    def heads(self) -> bool:
        return any(family in self.config.measure.families for family in ("attention", "projection"))

    @property
    def reported(self) -> bool:
        return self.config.hidden_states == "reported"


def opened(plan: Plan, place: load.Place) -> load.Loaded:
    """The model, with what has to be true of it before it reads a window."""
    loaded = load.load(place, plan.config.pretrained)
    guards.vocabulary(loaded, plan.windows)
    guards.shape(loaded, plan.config.window, plan.config.measure.projected_head)
    weights = plan.config.pretrained
    if weights.clamp is not None:
        loaded.about["clamped"] = clamp(loaded, weights.clamp, plan.windows.probe.tokens_GWT[0], weights.batch_size)
    return loaded


def residuals_of(plan: Plan, loaded: load.Loaded) -> list[np.ndarray]:
    """Of each batch the residual stream alone."""
    size = plan.config.pretrained.batch_size
    tokens_GWT = plan.windows.probe.tokens_GWT
    return [
        activations(loaded, tokens_WT[None], size, heads=False, reported=plan.reported).resid_ZNWTD[0]
        for tokens_WT in tokens_GWT
    ]


def table(plan: Plan, loaded: load.Loaded, step: int, last: bool, beside: Residuals, made: dict) -> xr.Dataset:
    """Every value of a revision; of the `last` one the loss has a bound, and the noise floor is measured."""
    weights, windows, measure = plan.config.pretrained, plan.windows, plan.config.measure
    tokens_T = windows.probe.tokens_GWT[0, 0]
    about = loaded.about | {"residual_stream": guards.final_norm(loaded, tokens_T)}
    if plan.reported:
        about["residual_stream"] = hidden_states.reported(loaded, tokens_T)
    visible_TT = np.ones((plan.config.window,) * 2, bool)
    if plan.heads:
        visible_TT, about["attention"] = guards.attention(loaded, tokens_T)
    most = weights.most_bits if last else np.inf  # early revisions of a training know nothing yet
    about |= guards.bits_per_byte(loaded, windows, weights.batch_size, most)
    if last:
        tell(plan, loaded, about)
    measured, noise = _measured(plan, loaded, step, visible_sets(visible_TT, windows), last, beside)
    about |= {"noise_floor": json.dumps(noise)} if noise else {}
    recorded = {name: value if isinstance(value, str | int | float) else "none" for name, value in about.items()}
    values = beside.without_itself(step, measured.values)
    found = raw.table(values, step, windows.positions, recorded | {"model": words(loaded, plan.config)} | made)
    vectors = projection.labelled(
        measured.vectors, windows.probe.picks_SGP[0, 0], plan.config.window, measure.projected_head
    )
    vectors |= leading_vectors.labelled(measured.vectors, windows.probe.tokens_GWT[0])
    if not beside.wanted:
        return found.assign(**vectors)
    found.attrs["compared_with"] = compared_with(beside.steps, step)
    return found.assign(
        **vectors, previous_step=xr.DataArray(before(beside.steps, step), attrs={"long_name": PREVIOUS})
    )


def _measured(
    plan: Plan, loaded: load.Loaded, step: int, visible_STT: np.ndarray, last: bool, beside: Residuals
) -> tuple[Measured, dict[str, float]]:
    """Batch by batch; the first one of the last revision once more, a window at a time and without a fused kernel."""
    settings, probe, size = plan.config.measure, plan.windows.probe, plan.config.pretrained.batch_size
    found: list[Measured] = []
    noise: dict[str, float] = {}

    for g in range(settings.batches):
        tokens_ZWT = np.stack([probe.tokens_GWT[g], probe.shuffled_GWT[g]][: len(inputs_of(settings))])
        inputs = activations(loaded, tokens_ZWT, size, plan.heads, reported=plan.reported)
        beside.keep(step, g, inputs.resid_ZNWTD[0])
        given = beside.beside(step, g), probe.picks_SGP[:, g], visible_STT, settings
        found.append(extracted.measure_batch(g, inputs, *given))
        if g == 0 and "leading" in settings.families:
            longest = jax.device_get(jax.jit(leading.vectors)(inputs.resid_ZNWTD[0]))
            found[0] = found[0]._replace(vectors=found[0].vectors | longest)
        if last and g == 0:
            other = 1 if size > 1 else 2
            inputs = activations(loaded, tokens_ZWT, other, plan.heads, plain=True, reported=plan.reported)
            noise = guards.noise_floor(found[0].values, extracted.measure_batch(g, inputs, *given).values)
    return extracted.joined(found), noise


def visible_sets(visible_TT: np.ndarray, windows: Windows) -> np.ndarray:
    """For each set of positions which key each query sees: what every window leaves out is neither."""
    without_first, without_special = visible_TT.copy(), visible_TT.copy()
    without_first[0] = without_first[:, 0] = False
    without_special[windows.fixed_T] = without_special[:, windows.fixed_T] = False
    return np.stack([visible_TT, without_first, without_special][: len(windows.positions)])


def words(loaded: load.Loaded, config: PretrainedConfig) -> str:
    own = loaded.model.config
    return (
        f"{loaded.about['model_class']}, {loaded.blocks} layers, D={own.hidden_size}, H={own.num_attention_heads}, "
        f"windows of {config.window} tokens, {loaded.about['weights_file']}"
    )


def tell(plan: Plan, loaded: load.Loaded, about: dict[str, Any]) -> None:
    """What a reader should know before the long part begins."""
    bits, bound = about["bits_per_byte"], about["bits_bound"]
    said = bits if isinstance(bits, str) else f"{bits:.2f}, {about['bits_of']}"
    weights, vectors = load.bytes_of(loaded.model), vectors_of_batch(plan, loaded)
    for line in (
        f"{words(loaded, plan.config)}, computed in {about['computed_in']}",
        f"windows: {plan.windows.about['windows']}; the first begins {plan.windows.about['first_tokens']}",
        f"special tokens: {plan.windows.about['special_tokens']}",
        f"windows that begin with one token twice, whose second vector may be another first: "
        f"{plan.windows.about['twice_first']}",
        *([f"clamped: {about['clamped']}"] if "clamped" in about else []),
        f"residual stream: {about['residual_stream']}",
        f"attention: {about.get('attention', 'not asked for')}",
        f"bits per byte of the text: {said}; at most {bound:.2f}",
        f"memory: weights {weights / 1e9:.2f} GB, vectors of a batch {vectors / 1e9:.2f} GB, "
        f"about {(weights + (1 + WORK) * vectors + BASE) / 1e9:.0f} GB in all",
    ):
        print(f"{plan.name}: {line}")


def vectors_of_batch(plan: Plan, loaded: load.Loaded) -> int:
    """Bytes."""
    tokens = plan.windows.probe.tokens_GWT[0].size * len(inputs_of(plan.config.measure))
    return tokens * loaded.model.config.hidden_size * 4 * (loaded.blocks + 1 + 2 * loaded.blocks * plan.heads)
