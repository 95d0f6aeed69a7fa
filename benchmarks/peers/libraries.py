"""Values and tasks of other libraries, in environments with them: `make parity`, `make bench`.

    python -m benchmarks.peers.libraries NAME values FOLDER       of every cloud of the folder, as JSON
    python -m benchmarks.peers.libraries NAME tasks POINTS WIDTH  a worker that times on a normal cloud

LLM-Microscope's measures are written from their description, in PyTorch.
"""

import importlib.metadata
import json
import pathlib
import sys

import numpy as np

try:
    import torch
except ImportError:  # not in the environment of DADApy
    torch = None

from benchmarks.peers import peer

DEVICE = "cuda" if torch and torch.cuda.is_available() else "cpu"


def skdim_values(cloud_PD):
    import skdim

    found = {
        "twonn": skdim.id.TwoNN(discard_fraction=0.1).fit(cloud_PD).dimension_,
        "twonn_mle": skdim.id.TwoNN(discard_fraction=0.0, method="mle").fit(cloud_PD).dimension_,
    }
    for first in peer.ranks(len(cloud_PD)):
        found[f"gride {first}"] = skdim.id.GRIDE(n1=first).fit(cloud_PD).dimension_
    return found


def skdim_tasks(cloud_PD):
    import skdim

    return {"TwoNN": lambda: skdim.id.TwoNN(discard_fraction=0.1).fit(cloud_PD)}


def dadapy_values(cloud_PD):
    from dadapy.data import Data

    points = len(cloud_PD)
    data = Data(coordinates=cloud_PD, verbose=False)
    bayes, bayes_std, _ = data.compute_id_2NN_wprior()
    found = {
        "twonn": data.compute_id_2NN(algorithm="base", mu_fraction=0.9)[0],
        "twonn_mle": data.compute_id_2NN(algorithm="ml")[0],
        "twonn_bayes": bayes,
        "twonn_bayes_std": bayes_std,
    }
    ranks = peer.ranks(points)
    curve_S = Data(coordinates=cloud_PD, verbose=False).return_id_scaling_gride(
        range_max=2 * ranks[-1]
    )[0]
    return found | {f"gride {first}": value for first, value in zip(ranks, curve_S, strict=True)}


def dadapy_tasks(cloud_PD):
    from dadapy.data import Data

    # a new object each time: it keeps the distances it has computed
    return {
        "TwoNN": lambda: Data(coordinates=cloud_PD, verbose=False, maxk=2).compute_id_2NN(
            algorithm="base"
        )
    }


def microscope(cloud_PD: "torch.Tensor") -> "torch.Tensor":
    """Compute Razzhigaev et al.'s dimension from the smallest fifth of the ratios above 1.

    Dropped ratios count in F.
    """
    x_PD = cloud_PD.double() - cloud_PD.double().mean(0)
    x_PD = x_PD / x_PD.norm(dim=1).mean()
    distance_PP = torch.cdist(x_PD, x_PD, compute_mode="donot_use_mm_for_euclid_dist")
    distance_PP.fill_diagonal_(torch.inf)
    r1_P, r2_P = distance_PP.topk(2, largest=False).values.T
    ratio_P = (r2_P / r1_P)[r1_P >= 1e-8]
    ratio_P = ratio_P[ratio_P > 1 + 1e-8].sort().values
    count, dropped = len(ratio_P), len(x_PD) - len(ratio_P)
    share_P = (dropped + torch.arange(1, count + 1)) / (dropped + count)
    kept = min(count // 5, count - 1)
    log_K, y_K = ratio_P[:kept].log(), -torch.log1p(-share_P[:kept].double())
    return (log_K * y_K).sum() / log_K.square().sum()


def microscope_anisotropy(cloud_PD: "torch.Tensor") -> "torch.Tensor":
    x_PD = cloud_PD.double() - cloud_PD.double().mean(0)
    singular_E = torch.linalg.svdvals(x_PD)
    return singular_E[0] ** 2 / singular_E.square().sum()


def torch_values(cloud_PD):
    from IsoScore.IsoScore import IsoScore

    cloud_PD = torch.from_numpy(cloud_PD)
    return {
        "twonn_microscope": microscope(cloud_PD),
        "anisotropy": microscope_anisotropy(cloud_PD),
        "isoscore": IsoScore(cloud_PD.double().numpy()),
    }


def twonn(cloud_PD: "torch.Tensor") -> "torch.Tensor":
    """Compute TwoNN in the plain way in float32.

    It takes all distances, the three smallest of each row (with the point itself), and fits a line.
    """
    nearest_P3 = torch.cdist(cloud_PD, cloud_PD).topk(3, largest=False).values
    log_P = (nearest_P3[:, 2] / nearest_P3[:, 1]).log().sort().values
    kept = int(0.9 * len(log_P))
    x_K = log_P[:kept]
    y_K = -torch.log1p(-torch.arange(1, kept + 1, device=x_K.device) / len(log_P))
    return (x_K * y_K).sum() / x_K.square().sum()


def torch_tasks(cloud_PD: np.ndarray):
    cloud_PD = torch.from_numpy(cloud_PD).to(DEVICE)
    torch.set_grad_enabled(False)
    timed = {
        "TwoNN": lambda: twonn(cloud_PD),
        "eigvalsh": lambda: torch.linalg.eigvalsh(cloud_PD.T.cov()),
        "svdvals": lambda: torch.linalg.svdvals(cloud_PD - cloud_PD.mean(0)),
        "SVD": lambda: torch.linalg.svd(cloud_PD - cloud_PD.mean(0), full_matrices=False).S,
        "product": lambda: cloud_PD @ cloud_PD.T,
    }
    # item: wait for a device
    return {name: lambda run=run: run().flatten()[0].item() for name, run in timed.items()}


LIBRARIES = {  # package, values, tasks
    "scikit-dimension": ("scikit-dimension", skdim_values, skdim_tasks),
    "DADApy": ("dadapy", dadapy_values, dadapy_tasks),
    "PyTorch": ("torch", torch_values, torch_tasks),
}


def main() -> None:
    name, *arguments = sys.argv[1:]
    package, values, tasks = LIBRARIES[name]
    version = f"{name} {importlib.metadata.version(package)}"
    match arguments:
        case "values", folder:
            found = {}
            for path in sorted(pathlib.Path(folder).glob("*.npy")):
                measured = values(np.load(path))
                found[path.stem] = {key: float(value) for key, value in measured.items()}
            print(json.dumps({"version": version, "values": found}))
        case "tasks", points, width:
            kind = "gpu" if name == "PyTorch" and DEVICE == "cuda" else "cpu"
            facts = {"version": version, "kind": kind}
            peer.serve(facts, tasks(peer.normal(int(points), int(width))))


if __name__ == "__main__":
    main()
