"""Spectra of weights over a run, against NumPy's in float64."""

import numpy as np
import pytest

from anisoscope.analysis import weights


class Run:
    """Two checkpoints of a model of two blocks; its tables of tokens are apart or one."""

    steps = (0, 7)

    def __init__(self, tied):
        generator, width = np.random.default_rng(0), 6
        shapes = {"qkv": (width, 3 * width), "attention_out": (width, width)}
        shapes |= {"mlp_up": (width, 24), "mlp_down": (24, width)}
        self.blocks = [
            {name: {"kernel": generator.normal(size=(2, *shape))} for name, shape in shapes.items()} for _ in self.steps
        ]
        self.tables = [{"tokens": generator.normal(size=(9, width)) + 1} for _ in self.steps]
        for table in [] if tied else self.tables:
            table["head"] = generator.normal(size=(width, 9))

    def params(self, step):
        place = self.steps.index(step)
        return self.tables[place] | {"blocks": self.blocks[place]}


@pytest.mark.parametrize("tied", [False, True])
def test_every_matrix_at_every_checkpoint(tied, monkeypatch):
    run = Run(tied)
    monkeypatch.setattr(weights, "open_run", lambda root: run)
    found = weights.of_run("here").set_index(["step", "block", "matrix"])
    assert len(found) == 2 * (2 * 6 + 1 + (not tied))

    def shares(step, block, part):
        kernel = run.blocks[run.steps.index(step)]["qkv"]["kernel"][block - 1]
        sigma = np.linalg.svd(np.split(kernel, 3, axis=1)[part], compute_uv=False)
        return sigma / sigma.sum(), sigma

    for part, name in enumerate(("query", "key", "value")):
        (before, _), (now, sigma) = (shares(step, 2, part) for step in run.steps)
        row = found.loc[7, 2, name]
        np.testing.assert_allclose(row.moved, np.abs(now - before).sum() / 2, rtol=1e-4)
        np.testing.assert_allclose(row.stable_rank, (sigma**2).sum() / sigma[0] ** 2, rtol=1e-4)
        np.testing.assert_allclose(row.effective_rank, np.exp(-(now * np.log(now)).sum()), rtol=1e-4)
        assert np.isnan(found.loc[0, 2, name].moved)
        assert np.isnan(row.anisotropy)
    tables = {"embedding": run.tables[1]["tokens"]} | ({} if tied else {"unembedding": run.tables[1]["head"].T})
    for name, x in tables.items():
        row, unit = found.loc[7, 0, name], x / np.linalg.norm(x, axis=1)[:, None]
        eigenvalues = np.linalg.eigvalsh(np.cov(x.T))
        np.testing.assert_allclose(row.anisotropy, eigenvalues.max() / eigenvalues.sum(), rtol=1e-4)
        np.testing.assert_allclose(row.participation_ratio, eigenvalues.sum() ** 2 / (eigenvalues**2).sum(), rtol=1e-4)
        np.testing.assert_allclose(
            row.mean_cosine, ((unit @ unit.T).sum() - len(x)) / (len(x) * (len(x) - 1)), rtol=1e-4
        )
