"""What is measured on curved manifolds, and what is read off it: names, units, formulas,
sources.
"""

from anisoscope.measurement.quantity import HERE, NOT_NEGATIVE, SHARE, Quantity
from anisoscope.subspaces.curved.curved_theory import SLOPES

SOURCE = "reconstruction after Bernas et al. 2026, Revisiting Anisotropy in Language Transformers"
GRADIENT = "G = dL/dW of L = E[(W x - y)^2]/2 at W = 0"
LAW = {
    "tangent_norm": Quantity(
        long_name="norm of the tangent gradient", formula=f"|Q' G|, {GRADIENT}, Q the tangent space", source=SOURCE,
        range=NOT_NEGATIVE,
    ),
    "normal_norm": Quantity(
        long_name="norm of the normal gradient", formula=f"|G - Q Q' G|, {GRADIENT}, Q the tangent space",
        source=SOURCE, range=NOT_NEGATIVE,
    ),
    "tangent_energy": Quantity(
        long_name="energy of the tangent gradient", formula="tangent_norm^2", source=SOURCE, range=NOT_NEGATIVE
    ),
    "normal_energy": Quantity(
        long_name="energy of the normal gradient", formula="normal_norm^2", source=SOURCE, range=NOT_NEGATIVE
    ),
    "normal_share": Quantity(
        long_name="share of the gradient's energy that is normal",
        formula="normal_energy / (normal_energy + tangent_energy)", source=SOURCE, range=SHARE,
    ),
    "normal_variance_share": Quantity(
        long_name="share of the points' variance that is normal",
        formula="variance of x outside of Q over all of it", source=HERE, range=SHARE,
    ),
}  # fmt: skip
# of types drawn by frequency
BIASED = {f"biased_{name}": quantity for name, quantity in LAW.items()}
SLOPE = {
    f"slope_{name}": Quantity(
        long_name=f"slope of the {LAW[name].long_name}",
        formula=f"of ln {name} on ln t, least squares over the spreads t of at most 0.1 / curvature",
        source=SOURCE,
    )
    for name in SLOPES
}
QUANTITIES = LAW | BIASED | SLOPE
