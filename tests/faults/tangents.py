"""Faults in tangent proxies: their formulas, and what is read, fitted and joined."""

from tests.faults.entry import Fault

FAULTS = [
    Fault(
        "positive and negative parts of semi-NMF swapped",
        "metrics/tangent.py",
        "up_PK = jnp.maximum(cross_PK, 0.0) + _product(weight_PK, jnp.maximum(-gram_KK, 0.0))",
        "up_PK = jnp.maximum(cross_PK, 0.0) + _product(weight_PK, jnp.maximum(gram_KK, 0.0))",
    ),
    Fault(
        "the last principal directions are the tangent",
        "metrics/tangent.py",
        "return eigh(_product(x_PD.T, x_PD))[1][:, ::-1][:, :rank]",
        "return eigh(_product(x_PD.T, x_PD))[1][:, :rank]",
    ),
    Fault(
        "control frames are not in the complement",
        "metrics/tangent.py",
        "return jnp.linalg.qr(_outside(frame_DK, jax.random.normal(key, frame_DK.shape)))[0]",
        "return jnp.linalg.qr(jax.random.normal(key, frame_DK.shape))[0]",
    ),
    Fault(
        "the least p is 0",
        "metrics/tangent.py",
        "p = (1.0 + (control_C >= own).sum()) / (1.0 + control_C.size)",
        "p = (control_C >= own).sum() / (1.0 + control_C.size)",
    ),
    Fault(
        "IsoScore* of a complement in all dimensions",
        "metrics/tangent.py",
        "(participation - 1.0) / (width - rank - 1.0))",
        "(participation - 1.0) / (width - 1.0))",
    ),
    Fault(
        "the vector of ones is left in",
        "tangents/inputs.py",
        "    if dimensions == width:\n",
        "    if True:\n",
        ("tests/tangents/test_sweep.py",),
    ),
    Fault(
        "proxies are tested on the windows that they were fitted to",
        "tangents/program.py",
        "read_now = read.read(network, params, to_test, visible_TT, basis_DD)",
        "read_now = read.read(network, params, to_fit, visible_TT, basis_DD)",
        ("tests/tangents/test_sweep.py",),
    ),
    Fault(
        "positions that are not scored are read",
        "tangents/inputs.py",
        "scored = [np.flatnonzero(weights_WT.ravel()) for weights_WT in weights_JWT]",
        "scored = [np.arange(weights_WT.size) for weights_WT in weights_JWT]",
        ("tests/tangents/test_sweep.py",),
    ),
    Fault(
        "step 0 is among the early checkpoints",
        "tangents/config.py",
        "return [step for step in kept if 0 < step <= tangents.early_fraction * last]",
        "return [step for step in kept if step <= tangents.early_fraction * last]",
        ("tests/tangents/test_sweep.py",),
    ),
    Fault(
        "excess over the wrong proxies",
        "tangents/quantities.py",
        'return excess.sel(fit="early", drop=True) - excess.sel(fit=fit, drop=True)',
        'return excess.sel(fit="here", drop=True) - excess.sel(fit=fit, drop=True)',
        ("tests/tangents/test_sweep.py",),
    ),
]
