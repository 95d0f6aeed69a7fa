"""The recorder on PyTorch's models, and in a training of transformers' own Trainer."""

import warnings

import numpy as np
import pytest
import torch
import transformers

import anisoscope
from anisoscope.results import joined_files
from anisoscope.sources.hf.hooked import output_tensor
from tests.sources.hf import tiny

BLOCKS = ["transformer.h.0", "transformer.h.2"]
QUICK = {"families": "similarity", "nulls": ()}


def passes(model, count=6):
    for number in range(count):
        ids = torch.as_tensor(np.roll(tiny.tokens(4, 10), number, axis=1), dtype=torch.long)
        mask = torch.ones_like(ids)
        mask[0, 7:] = 0
        yield ids, mask, model(input_ids=ids, attention_mask=mask, labels=ids)


def kept_in(own):
    return lambda _, args, found: own.append(output_tensor("a block", found))


def test_a_training_loop_is_what_it_was_and_the_rows_are_the_model_s_own(tmp_path):
    """Loss and gradients to the bit, no hook is left, and each row is the hidden state at its
    position.
    """
    ends = []
    for recorded in (False, True):
        model = tiny.model("gpt2", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0).train()
        optimizer, losses, own = torch.optim.SGD(model.parameters(), 0.1), [], []
        recorder = anisoscope.record(
            model, BLOCKS, to=tmp_path / "acts.zarr" if recorded else None, points=40
        )
        with recorder if recorded else torch.enable_grad():
            torch.manual_seed(1)
            catch = model.transformer.h[0].register_forward_hook(kept_in(own))
            for *_, found in passes(model):
                optimizer.zero_grad()
                found.loss.backward()
                optimizer.step()
                losses.append(float(found.loss.detach()))
            catch.remove()
        ends.append((losses, [p.detach().clone() for p in model.parameters()], torch.rand(3)))
        assert not any(one._forward_hooks or one._forward_pre_hooks for one in model.modules())
    assert ends[0][0] == ends[1][0]
    assert all((a == b).all() for a, b in zip(ends[0][1], ends[1][1], strict=True))
    assert (ends[0][2] == ends[1][2]).all()  # the random numbers of others
    found = recorder.sample()
    assert recorder.seen == 6 * 37
    assert found["vectors"].shape == (2, 40, 32)
    flat = torch.stack(own).detach().reshape(24, 10, 32).numpy()
    np.testing.assert_array_equal(found["vectors"][0], flat[found["clusters"], found["positions"]])
    first = found["clusters"] % 4 == 0
    assert found["positions"][first].max() < 7
    assert anisoscope.measure(tmp_path / "acts.zarr", **QUICK).sizes["layer"] == 2


def test_a_pass_that_raises_leaves_nothing_and_checkpointing_counts_once():
    model = tiny.model("gpt2").train()
    model.activation_checkpointing_enable()
    with anisoscope.record(model, BLOCKS, points=2000) as recorder:
        for *_, found in passes(model, 2):
            found.loss.backward()  # which computes the blocks again
        assert recorder.seen == 2 * 37
        with pytest.raises(IndexError):
            model(input_ids=torch.full((2, 5), 10_000))
        assert recorder.seen == 2 * 37
    with pytest.raises(ValueError, match=r"has no module 'transformer\.h\.9'"):
        anisoscope.record(model, ["transformer.h.9"])
    with pytest.raises(ValueError, match="hook_points names none"):
        anisoscope.record(model)
    with anisoscope.record(model.transformer, {"head": model.lm_head}) as recorder:
        with pytest.warns(
            UserWarning, match="hook point head did not run in this pass; leave it out"
        ):
            model.transformer(input_ids=torch.ones((2, 5), dtype=torch.long))
        recorder.active = False
        model.transformer(input_ids=torch.ones((2, 5), dtype=torch.long))


def rows():
    all_ids = [torch.as_tensor(ids, dtype=torch.long) for ids in tiny.tokens(64, 16)]
    return [{"input_ids": ids, "labels": ids} for ids in all_ids]


def training(tmp_path, callback, rows, evaluated):
    settings = transformers.TrainingArguments(
        output_dir=str(tmp_path / "theirs"), max_steps=6, per_device_train_batch_size=8, report_to=[], use_cpu=True,
        save_strategy="no", eval_strategy="steps", eval_steps=3, disable_tqdm=True, logging_steps=100,
    )  # fmt: skip
    model = tiny.model("gpt2")
    return transformers.Trainer(
        model, settings, train_dataset=rows, eval_dataset=evaluated, callbacks=[callback]
    )


def hooks_of(model):
    return [one for one in model.modules() if one._forward_hooks or one._forward_pre_hooks]


class BreaksOff(transformers.TrainerCallback):
    def on_step_begin(self, args, state, control, **_):
        if state.global_step == 3:
            raise KeyboardInterrupt


@pytest.mark.parametrize("on", ["step", "evaluate"])
def test_a_training_that_breaks_off_between_tables_leaves_no_hook(tmp_path, on):
    callback = anisoscope.trainer_callback(
        BLOCKS, tmp_path / "tables", every=2, on=on, points=128, **QUICK
    )
    trainer = training(tmp_path, callback, rows(), rows()[:16])
    trainer.add_callback(BreaksOff())
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert not hooks_of(trainer.model)


@pytest.mark.parametrize("on", ["step", "evaluate"])
def test_a_callback_of_the_trainer_writes_a_table_a_step(tmp_path, on):
    torch.manual_seed(0)
    callback = anisoscope.trainer_callback(
        BLOCKS, tmp_path / "tables", every=2, on=on, points=128, **QUICK
    )
    trainer = training(tmp_path, callback, rows(), rows()[:16])
    trainer.train()
    table = joined_files.read_table(tmp_path / "tables" / "results.nc")
    assert table.step.values.tolist() == ([0, 2, 4] if on == "step" else [3, 6])
    assert table.sizes["layer"] == 2
    # it learns
    assert np.ptp(table.drift.sel(statistic="mean", positions="all").values, axis=0).min() > 0
    model = trainer.model
    assert not hooks_of(model)
    if on == "evaluate":
        model.eval()
        with anisoscope.record(model, BLOCKS, points=256) as recorder, torch.no_grad():
            model(input_ids=torch.stack([row["input_ids"] for row in rows()[:16]]))
        own = recorder.measure(**QUICK)
        assert float(
            table.drift.sel(step=6, statistic="mean", positions="all", layer=0)
        ) == pytest.approx(float(own.drift.sel(statistic="mean").isel(layer=0)), rel=0.05)
        with pytest.raises(
            ValueError, match="has a table of step 3, and training begins at 0: name another"
        ):
            trainer.train()
    with pytest.raises(ValueError, match="on is 'epoch'"):
        anisoscope.trainer_callback(BLOCKS, tmp_path / "tables", on="epoch")


@pytest.mark.parametrize("kind", ["opt", "albert"])
def test_layers_that_are_dropped_or_shared_are_warned_of_and_the_training_goes_on(tmp_path, kind):
    torch.manual_seed(0)
    name, changes, words = {
        "opt": ("model.decoder.layers.1", {"layerdrop": 1.0}, "did not run in this pass"),
        "albert": (
            "albert.encoder.albert_layer_groups.0.albert_layers.0",
            {},
            "runs more than once",
        ),
    }[kind]
    callback = anisoscope.trainer_callback(
        [name], tmp_path / "tables", every=2, points=128, **QUICK
    )
    trainer = training(tmp_path, callback, rows(), rows()[:16])
    trainer = transformers.Trainer(
        tiny.model(kind, **changes),
        trainer.args,
        train_dataset=rows(),
        eval_dataset=rows()[:16],
        callbacks=[callback],
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.train()
    messages = [str(warning.message) for warning in caught]
    assert any(
        "was not measured: nothing was recorded" in text and words in text for text in messages
    )
    assert trainer.state.global_step == 6
    assert not hooks_of(trainer.model)


def test_gradient_accumulation_gives_a_table_of_all_passes_of_a_step(tmp_path):
    sizes = []

    class Counts(transformers.TrainerCallback):
        def on_substep_end(self, args, state, control, **_):
            sizes.append(callback.recorder.seen)

    callback = anisoscope.trainer_callback(
        BLOCKS, tmp_path / "tables", every=6, points=128, **QUICK
    )
    trainer = training(tmp_path, callback, rows(), rows()[:16])
    trainer.args.gradient_accumulation_steps = 2
    trainer.add_callback(Counts())
    trainer.train()
    assert sizes[0] == 8 * 16
    table = joined_files.read_table(tmp_path / "tables" / "results.nc")
    assert table.step.values.tolist() == [0]
    assert table.attrs["points"] == 128
