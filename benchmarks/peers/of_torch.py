"""PyTorch: LLM-Microscope's measures, IsoScore, and plain products, SVD and searches.

LLM-Microscope's measures are written from their description.
"""

import numpy as np
import torch

from benchmarks.peers import peer

VERSION = f"torch {torch.__version__}"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def microscope(cloud_PD: torch.Tensor) -> torch.Tensor:
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


def microscope_anisotropy(cloud_PD: torch.Tensor) -> torch.Tensor:
    x_PD = cloud_PD.double() - cloud_PD.double().mean(0)
    singular_E = torch.linalg.svdvals(x_PD)
    return singular_E[0] ** 2 / singular_E.square().sum()


def values(cloud_PD):
    from IsoScore.IsoScore import IsoScore

    cloud_PD = torch.from_numpy(cloud_PD)
    return {
        "twonn_microscope": microscope(cloud_PD),
        "anisotropy": microscope_anisotropy(cloud_PD),
        "isoscore": IsoScore(cloud_PD.double().numpy()),
    }


def twonn(cloud_PD: torch.Tensor) -> torch.Tensor:
    """Compute TwoNN in the plain way in float32.

    It takes all distances, the three smallest of each row (with the point itself), and fits a line.
    """
    nearest_P3 = torch.cdist(cloud_PD, cloud_PD).topk(3, largest=False).values
    log_P = (nearest_P3[:, 2] / nearest_P3[:, 1]).log().sort().values
    kept = int(0.9 * len(log_P))
    x_K = log_P[:kept]
    y_K = -torch.log1p(-torch.arange(1, kept + 1, device=x_K.device) / len(log_P))
    return (x_K * y_K).sum() / x_K.square().sum()


def tasks(cloud_PD: np.ndarray):
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


if __name__ == "__main__":
    peer.main(VERSION, values, tasks, "cpu" if DEVICE == "cpu" else "gpu")
