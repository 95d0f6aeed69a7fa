"""What earlier versions called otherwise: name then -> name now. A command with the old name is told the new one."""

EXPERIMENTS = {
    "mask_laboratory": "mask_ablations",
    "norm_laboratory": "norm_ablations",
    "optimizer_laboratory": "optimizer_ablations",
    "positions_laboratory": "position_ablations",
    "twins_small": "matched_pair_small",
}
