"""Measured activations: every value and resample is that of slow loops in float64; and programs."""

import functools

import jax
import jax.export
import numpy as np
import pytest

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.model_config import ModelConfig
from anisoscope.engine import programs
from anisoscope.engine.null_models import permuted
from anisoscope.metrics import registry
from anisoscope.models.masks import visible_keys
from anisoscope.sources import activations, run_program
from anisoscope.sources.evaluation_windows import POSITION_SETS
from anisoscope.training import train_program
from anisoscope.utils.settings import replace
from tests import reference_comparison
from tests import tiny as training
from tests.sources.activated import (
    BATCHES,
    CONFIG,
    CONTEXT,
    FOLDS,
    MEASURED,
    POINTS,
    PROBE,
    QUANTITIES,
    VOCAB,
    activations_of,
    of,
    others,
    tiny,
    visible,
)
from tests.sources.loops import (
    cut,
    jackknife,
    slow_cloud,
    slow_frequency,
    slow_head,
    slow_leading,
    slow_spectra,
)


@pytest.mark.slow
@pytest.mark.parametrize("cloud", ["measured", "shuffled"])
def test_agrees_with_slow_loops_in_float64_on_every_resample(cloud):
    found, checked = of(cloud), set()

    def near(name, got, value, rtol=1e-4, atol=1e-6):
        np.testing.assert_allclose(got, value, rtol=rtol, atol=atol, err_msg=name)
        checked.add(name)

    tokens_GWT = PROBE.shuffled_GWT if cloud == "shuffled" else PROBE.tokens_GWT
    for batch, positions in np.ndindex(BATCHES, len(POSITION_SETS)):
        own = activations_of(tokens_GWT[batch])
        picks = PROBE.picks_SGP[positions, batch]
        for layer, resid in enumerate(own.resid_LBTD):
            picked = resid.reshape(-1, resid.shape[-1])[picks]
            for name, value in slow_cloud(picked).items():
                got = found[name][batch, positions, layer]
                if registry.find_family(name) == "dimension" and QUANTITIES[name].resampling:
                    # a mean of ln(r2/r1), whose float32 error is 1e-7 where r2 = r1
                    got, value = 1 / got, 1 / value
                near(name, got, value)
            for name, value in slow_spectra(picked).items():
                near(name, found[name][batch, positions, layer, ..., 0], value)
            for name, value in slow_leading(picked, picks).items():
                got = found[name][batch, positions, layer]
                if name == "twonn_without_longest":
                    got, value = 1 / got, 1 / value
                near(name, got, value, rtol=1e-3)
            for name, value in slow_frequency(picked, tokens_GWT[batch], picks).items():
                near(name, found[name][batch, positions, layer], value, rtol=1e-3, atol=1e-4)
        visible = np.asarray(visible_keys(ModelConfig(), CONTEXT)).copy()
        if POSITION_SETS[positions] == "without_first_token":
            visible[0] = visible[:, 0] = False
        for block, head in np.ndindex(2, 2):
            q, k = (x[block, :, :, head] for x in (own.q_NBTHK, own.k_NBTHK))
            for name, value in slow_head(q, k, picks, visible).items():
                near(name, found[name][batch, positions, block, head], value)
        # NaN without the first token
        weight = found["attention_first_token"][batch, positions, ..., 0]
        sinks = np.where(np.isnan(weight).any(axis=-1), np.nan, (weight > 0.3).mean(axis=-1))
        near("sink_heads", found["sink_heads"][batch, positions], sinks)
    assert checked == {name for name in MEASURED if registry.find_family(name) != "comparison"}
    assert (found["duplicate_points"][:, :, 0] > 0).all()
    # draws have the types of the text, not of the shuffled text
    number, null = (of(name)["frequent_points"] for name in ("measured", "gaussian"))
    np.testing.assert_array_equal(null, number)


@pytest.mark.slow
def test_compares_layers_and_checkpoints():
    found = of()
    apply, params = tiny()
    tokens, picks = PROBE.tokens_GWT[1], PROBE.picks_SGP[0, 1]

    def clouds(params):
        resid = np.asarray(apply(params, tokens)[1].resid_LBTD)
        return [x.reshape(-1, x.shape[-1])[picks] for x in resid]

    own = clouds(params)
    pairs = {("layers", i, j): (own[i], own[j]) for i, j in np.ndindex(3, 3)}
    pairs |= {
        (name, i): (own[i], clouds(other)[i]) for name, other in others().items() for i in range(3)
    }
    for (name, *place), pair in pairs.items():
        resampled = list(zip(*(jackknife(cloud) for cloud in pair), strict=True))
        for kind in ("cka", "cka_unbiased"):
            cka = [getattr(reference_comparison, f"linear_{kind}")(*parts) for parts in resampled]
            np.testing.assert_allclose(
                found[f"{kind}_{name}"][(1, 0, *place)], cka, rtol=1e-4, atol=1e-6
            )
        resampled = zip(*(cut(cloud) for cloud in pair), strict=True)
        overlap = [reference_comparison.neighbor_overlap(*parts, 10) for parts in resampled]
        np.testing.assert_allclose(
            found[f"neighbor_overlap_{name}"][(1, 0, *place)], overlap, rtol=1e-6
        )


@pytest.mark.slow
def test_the_permuted_null_model_reads_other_windows_of_the_same_batch():
    tokens, picks = PROBE.tokens_GWT[1], PROBE.picks_SGP[0, 1]
    resid = activations_of(tokens).resid_LBTD.reshape(3, -1, 16)
    key = jax.random.split(jax.random.key(0), BATCHES)[1]
    order = np.asarray(permuted(picks, len(tokens), CONTEXT, key))
    found = of("permuted")["cka_unbiased_layers"]
    cka = reference_comparison.linear_cka_unbiased
    for n, m in ((0, 2), (1, 1)):
        expected = cka(resid[n, order], resid[m, picks])
        np.testing.assert_allclose(found[1, 0, n, m, 0], expected, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_a_device_and_arrays_give_the_same_numbers():
    """What a model reads may stay where it is."""
    settings = MeasureConfig(
        points=POINTS, batches=1, folds=FOLDS, families=("similarity", "attention"), nulls=()
    )
    host = activations.BatchActivations(
        *(np.asarray(x)[None] for x in activations_of(PROBE.tokens_GWT[0])[:3])
    )
    rest = {}, PROBE.picks_SGP[:1, 0], np.asarray(visible())[None], settings
    found = (activations.measure_batch(0, read, *rest) for read in (host, jax.device_put(host)))
    jax.tree.map(np.testing.assert_array_equal, *found)


def programs_of_the_panel():
    """Yield all programs of measuring, and the shapes of their arguments."""
    of()
    for function, static, structure, shapes, _ in list(programs._futures):
        with programs._settings():
            arguments = jax.tree.unflatten(structure, shapes)
            yield jax.jit(functools.partial(function, **dict(static))), arguments


@pytest.mark.slow
def test_every_product_of_a_measurement_has_full_float32_precision():
    """On an accelerator a product without it rounds its factors to TF32 or bfloat16; a CPU cannot
    show that.
    """
    texts = [str(jax.make_jaxpr(function)(*shapes)) for function, shapes in programs_of_the_panel()]
    tokens = np.asarray(PROBE.tokens_GWT[0])[None]
    forward = run_program._jit_forward(CONFIG, VOCAB, (), True)
    texts.append(str(jax.make_jaxpr(forward)(tiny()[1], tokens, visible(), 0)))
    text = "".join(texts)
    products = text.count("dot_general[")
    assert products > 7
    assert (
        text.count("precision=(Precision.HIGHEST, Precision.HIGHEST)")
        + text.count("precision=HIGHEST")
        == products
    )


@pytest.mark.slow
@pytest.mark.parametrize("what", ["panel", "training step"])
def test_programs_are_lowered_for_accelerators(what):
    """What a GPU or a TPU lacks is found here, without one."""
    lowered = programs_of_the_panel()
    if what == "training step":
        config = replace(training.config(), {"model.dtype": "bfloat16"})
        made = train_program.make_train_program(config, training.corpus())
        arguments = (made.create(), made.tokens_N, made.data_R, np.int32(1))
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), x.dtype), arguments)
        lowered = [(made.steps, shapes)]
    for function, shapes in lowered:
        exported = jax.export.export(function, platforms=("cuda", "tpu"))(*shapes)
        assert len(exported.mlir_module_serialized) > 1000
