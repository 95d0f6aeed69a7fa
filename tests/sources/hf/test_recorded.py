"""The recorder on PyTorch's models, and in a training of transformers' own Trainer."""

import warnings

import numpy as np
import pytest
import torch
import transformers

import anisoscope
from anisoscope.results import joined_files
from anisoscope.sources.hf.recorder_hooks import output_tensor
from tests.sources.hf import tiny_models

BLOCKS = ["transformer.h.0", "transformer.h.2"]
QUICK = {"families": "similarity", "nulls": ()}
ROWS = [
    {"input_ids": torch.as_tensor(ids, dtype=torch.long)} | {"labels": torch.as_tensor(ids).long()}
    for ids in tiny_models.tokens(64, 16)
]


def passes(model, count=6):
    for number in range(count):
        ids = torch.as_tensor(np.roll(tiny_models.tokens(4, 10), number, axis=1), dtype=torch.long)
        mask = torch.ones_like(ids)
        mask[0, 7:] = 0
        yield model(input_ids=ids, attention_mask=mask, labels=ids)


def hooks_of(model):
    return [one for one in model.modules() if one._forward_hooks or one._forward_pre_hooks]


def test_a_training_loop_is_what_it_was_and_the_rows_are_the_model_s_own(tmp_path):
    """Loss and gradients to the bit, no hook is left, and each row is the hidden state at its
    position.
    """
    ends = []
    for recorded in (False, True):
        model = tiny_models.model("gpt2", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0).train()
        optimizer, losses, own = torch.optim.SGD(model.parameters(), 0.1), [], []
        to = tmp_path / "acts.nc" if recorded else None
        recorder = anisoscope.record(model, BLOCKS, to=to, points=40)
        with recorder if recorded else torch.enable_grad():
            torch.manual_seed(1)
            catch = model.transformer.h[0].register_forward_hook(
                lambda _, args, found, own=own: own.append(output_tensor("a block", found)[0])
            )
            for found in passes(model):
                optimizer.zero_grad()
                found.loss.backward()
                optimizer.step()
                losses.append(float(found.loss.detach()))
            catch.remove()
        ends.append((losses, [p.detach().clone() for p in model.parameters()], torch.rand(3)))
        assert not hooks_of(model)
    assert ends[0][0] == ends[1][0]
    assert all((a == b).all() for a, b in zip(ends[0][1], ends[1][1], strict=True))
    assert (ends[0][2] == ends[1][2]).all()  # the random numbers of others
    sample = recorder.sample()
    assert recorder.rows == 6 * 37
    assert sample["vectors"].shape == (2, 40, 32)
    flat = torch.stack(own).detach().reshape(24, 10, 32).numpy()
    expected = flat[sample["clusters"], sample["token_positions"]]
    np.testing.assert_array_equal(sample["vectors"][0], expected)
    assert sample["token_positions"][sample["clusters"] % 4 == 0].max() < 7
    assert anisoscope.measure(tmp_path / "acts.nc", **QUICK).sizes["layer"] == 2


def test_checkpointing_counts_once_and_a_pass_without_the_hook_point_not_at_all():
    model = tiny_models.model("gpt2").train()
    model.activation_checkpointing_enable()
    with anisoscope.record(model, BLOCKS, points=2000) as recorder:
        for found in passes(model, 2):
            found.loss.backward()  # which computes the blocks again
        assert recorder.rows == 2 * 37
    for name in ("transformer.h.9", "transformer.h.9*"):
        with pytest.raises(ValueError, match=f"has no module {name!r}".replace("*", r"\*")):
            anisoscope.record(model, [name])
    found = anisoscope.record(model, ["transformer.h.*", "transformer.wte"]).hook_points
    blocks = [f"transformer.h.{n}" for n in range(len(model.transformer.h))]
    assert [*found] == [*blocks, "transformer.wte"]
    with pytest.raises(ValueError, match="hook_points is empty"):
        anisoscope.record(model)
    missed = pytest.warns(UserWarning, match="head did not run in this pass")
    with anisoscope.record(model.transformer, {"head": model.lm_head}), missed:
        model.transformer(input_ids=torch.ones((2, 5), dtype=torch.long))


def make_trainer(tmp_path, callback, model=None, evaluated=ROWS[:16]):
    settings = transformers.TrainingArguments(
        output_dir=str(tmp_path / "theirs"), max_steps=6, per_device_train_batch_size=8, report_to=[], use_cpu=True,
        save_strategy="no", eval_strategy="steps", eval_steps=3, disable_tqdm=True, logging_steps=100,
    )  # fmt: skip
    model = tiny_models.model("gpt2") if model is None else model
    torch.manual_seed(0)
    return transformers.Trainer(
        model, settings, train_dataset=ROWS, eval_dataset=evaluated, callbacks=[callback]
    )


class BreaksOff(transformers.TrainerCallback):
    def on_step_begin(self, args, state, control, **_):
        if state.global_step == 3:
            raise KeyboardInterrupt


@pytest.mark.parametrize("on", ["step", "evaluate"])
def test_a_callback_of_the_trainer_writes_a_table_a_step(tmp_path, on):
    options = {"every": 2, "on": on, "points": 128} | QUICK
    callback = anisoscope.trainer_callback(BLOCKS, tmp_path / "tables", **options)
    trainer = make_trainer(tmp_path, callback)
    trainer.train()
    table = joined_files.read_table(tmp_path / "tables" / "results.nc")
    assert table.step.values.tolist() == ([0, 2, 4, 5] if on == "step" else [3, 6])
    assert table.sizes["layer"] == 2
    drift = table.drift.sel(statistic="mean", positions="all")
    assert np.ptp(drift.values, axis=0).min() > 0  # it learns
    model = trainer.model
    assert not hooks_of(model)
    if on == "evaluate":
        model.eval()
        with anisoscope.record(model, BLOCKS, points=256) as recorder, torch.no_grad():
            model(input_ids=torch.stack([row["input_ids"] for row in ROWS[:16]]))
        own = recorder.measure(**QUICK).drift.sel(statistic="mean").values[0]
        assert float(drift.sel(step=6, layer=0)) == pytest.approx(float(own), rel=0.05)
        with pytest.raises(ValueError, match="has a table of step 3, but training begins at 0"):
            trainer.train()
    callback = anisoscope.trainer_callback(BLOCKS, tmp_path / "broken", **options)
    trainer = make_trainer(tmp_path, callback)
    trainer.add_callback(BreaksOff())
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert not hooks_of(trainer.model)


def test_gradient_accumulation_gives_a_table_of_all_passes_of_a_step(tmp_path):
    sizes = []

    class Counts(transformers.TrainerCallback):
        def on_substep_end(self, args, state, control, **_):
            sizes.append(callback.recorder.rows)

    options = {"every": 6, "points": 128} | QUICK
    callback = anisoscope.trainer_callback(BLOCKS, tmp_path / "tables", **options)
    trainer = make_trainer(tmp_path, callback)
    trainer.args.gradient_accumulation_steps = 2
    trainer.add_callback(Counts())
    trainer.train()
    assert sizes[0] == 8 * 16
    table = joined_files.read_table(tmp_path / "tables" / "results.nc")
    assert table.step.values.tolist() == [0, 5]  # the last step too
    assert table.attrs["points"] == 128


@pytest.mark.parametrize(
    ("kind", "name", "changes", "words"),
    [
        ("opt", "model.decoder.layers.1", {"layerdrop": 1.0}, "did not run in this pass"),
        ("albert", "albert.encoder.albert_layer_groups.0", {}, "runs more than once"),
    ],
)
def test_layers_that_are_dropped_or_shared_give_a_warning_and_the_training_goes_on(
    tmp_path, kind, name, changes, words
):
    options = {"every": 2, "points": 128} | QUICK
    callback = anisoscope.trainer_callback([name], tmp_path / "tables", **options)
    trainer = make_trainer(tmp_path, callback, tiny_models.model(kind, **changes))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.train()
    messages = [str(warning.message) for warning in caught]
    assert any("nothing was recorded" in text and words in text for text in messages)
    assert trainer.state.global_step == 6
    assert not hooks_of(trainer.model)


def test_of_several_evaluations_at_a_step_the_first_is_measured_and_a_line_says_so(tmp_path):
    callback = anisoscope.trainer_callback(BLOCKS, tmp_path / "t", on="evaluate", **QUICK)
    sets = {"a": ROWS[:16], "b": ROWS[16:40]}
    trainer = make_trainer(tmp_path, callback, evaluated=sets)
    with pytest.warns(UserWarning, match="step [36] has several evaluations") as caught:
        trainer.train()
    assert len(caught) == 2
    table = joined_files.read_table(tmp_path / "t" / "results.nc")
    assert table.step.values.tolist() == [3, 6]
    assert table.attrs["points"] == 16 * 16
