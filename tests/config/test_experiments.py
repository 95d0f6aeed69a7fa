import importlib
import inspect
import json
import pathlib

import pytest

from anisoscope import experiments
from anisoscope.analysis import primary
from anisoscope.cli.training_stages import check_run
from anisoscope.config import variants
from anisoscope.config.experiment_config import Config
from anisoscope.utils.settings import flat, from_dict, replace, to_dict

FILES = sorted(  # of trained runs
    path.stem
    for path in pathlib.Path(experiments.__file__).parent.glob("*.py")
    if "def get_config(" in path.read_text() and "-> Config:" in path.read_text()
)
WITH_RECIPES = ["decoder_small", "encoder_small", "interventions_small", "mask_ablations"]
WITH_RECIPES += ["matched_pair_small", "norm_ablations"]


def of(name):
    return importlib.import_module(f"anisoscope.experiments.{name}")


def configs():
    for name in FILES:
        get_config = of(name).get_config
        yield name, get_config()
        if inspect.signature(get_config).parameters:
            smallest = next(iter(getattr(of(name), "SHAPES", ["tiny"])))
            yield f"{name}:{smallest}", get_config(smallest)
            if name in WITH_RECIPES:
                yield f"{name}:tiny,gpt2", get_config("tiny,gpt2")
                yield f"{name}:small,muon", get_config("small,muon")


@pytest.mark.parametrize(
    ("name", "config"), list(configs()), ids=lambda v: v if isinstance(v, str) else ""
)
def test_every_experiment_validates_and_round_trips_through_json(name, config):
    assert from_dict(json.loads(json.dumps(to_dict(config))), type(config)) == config
    runs = variants.expand(config)
    primary.check_primary(getattr(config, "primary", {}), list(runs))
    for run in runs.values():
        check_run(run)
        assert not run.variants
        assert not run.primary
        assert from_dict(to_dict(run), Config) == run


def test_the_matched_pair_differs_in_mask_and_objective_only():
    for decoder, encoder in (
        (of("decoder_small").get_config(), of("encoder_small").get_config()),
        variants.expand(of("matched_pair_small").get_config()).values(),
        variants.expand(of("quickstart").get_config()).values(),
    ):
        assert (decoder.model.mask, decoder.objective) == ("causal", "next")
        assert (encoder.model.mask, encoder.objective) == ("bidirectional", "masked")
        encoder = replace(encoder, {"model.mask": "causal", "objective": "next"})
        assert encoder == decoder


def test_runs_of_the_mask_ablations_differ_in_mask_objective_and_seed_only():
    runs = variants.expand(of("mask_ablations").get_config())
    cells = {name.rpartition("_")[0] for name in runs}
    assert {f"{cell}_{seed}" for cell in cells for seed in of("mask_ablations").SEEDS} == {*runs}
    settings = {(run.model.mask, run.model.leak, run.objective) for run in runs.values()}
    assert len(settings) == len(cells) == 9
    for name, run in runs.items():
        assert name.endswith(f"_{run.train.seed}")
        alike = {"model.mask": "causal", "model.prefix": 0, "model.window": 0, "model.leak": 0.0}
        alike |= {"objective": "next", "train.seed": 2, "model.leak_seed": 2}
        assert replace(run, alike) == replace(runs["causal_next_2"], {"model.leak_seed": 2})


def test_each_intervention_changes_one_setting_of_the_plain_run_of_its_seed():
    runs = variants.expand(of("interventions_small").get_config())
    for name, run in runs.items():
        plain = flat(to_dict(runs[f"softmax_{run.train.seed}"]))
        changed = [field for field, value in flat(to_dict(run)).items() if value != plain[field]]
        assert len(changed) == (not name.startswith("softmax_") or "one" in name)
        assert all(field.startswith(("model.", "train.")) for field in changed)
        assert name.endswith(f"_{run.train.seed}")
    assert len({str(to_dict(run)) for run in runs.values()}) == len(runs) == 40
