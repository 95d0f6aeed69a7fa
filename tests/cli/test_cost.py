import jax
import jax.numpy as jnp
import pytest

from anisoscope.cli import cost, explained, memory
from anisoscope.experiments import quickstart
from anisoscope.models import transformer
from anisoscope.training.program import make_program
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import replace
from tests import tiny

SMALL = {"model.dtype": "float32", "model.width": 32, "model.heads": 4, "model.context": 64, "train.batch_size": 64}


@pytest.mark.parametrize("changes", [{}, {"model.mask": "prefix", "model.prefix": 3}, {"model.tied": False}])
def test_parameters_and_state_are_those_of_the_model(changes):
    config, corpus = replace(tiny.config(), changes), tiny.corpus()
    state = make_program(config, corpus).abstract
    sizes = [sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree)) for tree in (state.params, state)]
    assert list(memory.state_bytes(config, corpus.vocab_size)) == sizes
    assert cost.of_run(config, cost.size_of(corpus)).parameters == transformer.count_parameters(state.params)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"model.remat": True}])
def test_the_memory_of_a_step_is_about_what_its_program_asks_for(changes):
    config, corpus = replace(tiny.config(), SMALL | changes), tiny.corpus(2000)
    program = make_program(config, corpus)
    state = jax.eval_shape(program.create)
    asked = program.steps.lower(state, program.tokens_N, program.data_R, jnp.int32(1)).compile().memory_analysis()
    told = memory.training(config, corpus.vocab_size)["train.batch_size"]
    assert 0.6 < told / asked.temp_size_in_bytes < 1.6


@pytest.mark.parametrize(
    ("changes", "there", "words"),
    [
        ({"train.batch_size": 10**8}, 10**10, r"--stages=train would .* lower train\.batch_size \(100000000\), model"),
        ({"train.num_seeds": 1000, "train.num_data_seeds": 1}, 10**7, r"lower train\.num_seeds \(1000\) or train\.num"),
        ({"model.width": 10**7}, 10**10, r"and 10\.0 GB are available: lower model\.width \(10000000\) or model\."),
        ({"measure.points": 2**20}, 10**8, r"--stages=measure would .* lower measure\.points \(1048576\)"),
    ],
)
def test_what_does_not_fit_is_refused_by_the_setting_that_helps(monkeypatch, changes, there, words):
    assert memory.available() > 10**8
    monkeypatch.setattr(memory, "available", lambda: there)
    memory.check_memory(tiny.config(), 8, ["train", "measure"])
    with pytest.raises(UserError, match=words):
        memory.check_memory(replace(tiny.config(), changes), 8, ["train", "measure"])
    memory.check_memory(replace(tiny.config(), changes), 8, ["figures"])
    monkeypatch.setattr(memory, "available", lambda: None)  # the machine does not say
    memory.check_memory(replace(tiny.config(), changes), 8, ["train", "measure"])


def test_time_grows_with_what_is_done_and_is_that_of_the_demo_where_it_was_timed():
    """Two idle cores: 285e9 operations a second; 102 s to train both, 51 s to measure both, 3 min 10 s in all."""
    demo, text = quickstart.get_config(), cost.Text(106, 27_000)
    costs = {model: cost.of_run(demo, text) for model in ("decoder", "encoder")}
    stages = cost.seconds(costs, ["train", "measure", "figures"], 10**6, 285e9)
    assert stages["train"] == pytest.approx(102, rel=0.2)
    assert stages["measure"] == pytest.approx(51, rel=0.2)
    assert sum(stages.values()) == pytest.approx(190, rel=0.2)
    twice = cost.of_run(replace(demo, {"train.steps": 512, "checkpoint.every": 512}), text)
    assert 1.5 < twice.training / costs["decoder"].training < 2
    assert twice.measuring == pytest.approx(1.1 * costs["decoder"].measuring)
    assert cost.of_run(replace(demo, {"measure.families": ("spectrum",)}), text).measuring < twice.measuring / 3


def test_validations_are_counted_without_a_list_of_them():
    many = {"train.steps": 2 * 10**9, "evaluate.every": 1, "checkpoint.every": 10**6}
    few = {"train.steps": 12, "evaluate.every": 5, "checkpoint.every": 6}  # 0, 5, 10 and 1, 2, 4, 6, 8, 12
    more = []
    for settings in (many, few):
        both = (replace(tiny.config(), settings | {"evaluate.windows": count}) for count in (1, 2))
        one, two = (cost.of_run(config, cost.Text(8)).training for config in both)
        more.append(two - one)
    assert more[0] / more[1] == pytest.approx((2 * 10**9 + 1) / 9)


def test_the_memory_at_the_fullest_is_that_of_the_stage_which_takes_most():
    config = replace(tiny.config(), {"tangents.points": 10**6, "tangents.windows": 10**6})
    text, both = cost.size_of(tiny.corpus()), [replace(config, {"tangents.enabled": on}) for on in (False, True)]
    plain, with_tangents = (cost.of_run(one, text).memory for one in both)
    assert with_tangents == sum(memory.tangents(config, text.vocabulary).values()) > plain


def test_durations_are_as_exact_as_they_are_known():
    said = [cost.duration(seconds) for seconds in (0.1, 100, 150, 9000)]
    assert said == ["1 second", "100 seconds", "2 minutes", "2 hours"]


def test_an_experiment_of_ones_own_is_listed_without_being_run(tmp_path):
    mine = '"""Mine.\n\nMore."""\nraise SystemExit\nCOST = {"": "a day"}\ndef get_config(): 1'
    (tmp_path / "mine.py").write_text(mine)
    (tmp_path / "other.py").write_text("x = 1")
    (tmp_path / "broken.py").write_text("def get_config(:")
    (tmp_path / "computed.py").write_text("def get_config(): 1\nCOST = 3 * hours\n")
    found = list(explained.entries(tmp_path))
    assert found == [(tmp_path / "computed.py", "", {}), (tmp_path / "mine.py", "Mine.", {"": "a day"})]
