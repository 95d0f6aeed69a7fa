"""What was run, on which text, with which versions, and the files beside the page, as HTML."""

import json
import os
import pathlib
from html import escape
from urllib.parse import quote

from anisoscope.plot.provenance import provenance
from anisoscope.plot.run import Run
from anisoscope.training import finished
from anisoscope.utils.files import read_json


def lines(drawn: dict[str, Run]) -> list[str]:
    """What all runs share, and what each has beside that."""
    shared, own = provenance(drawn)
    return [line for line in (shared, *own) if line]


def origin(runs: dict[str, Run], drawn: dict[str, Run], folders: dict[str, pathlib.Path]) -> str:
    """The lines that stand below every figure; then each run with its text, versions and settings."""
    parts = [f"<p>{escape(line)}</p>" for line in lines(drawn)]
    for label, run in runs.items():
        told = facts(run, folders.get(label))
        rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(said)}</dd>" for name, said in told)
        settings = json.dumps(json.loads(run.results.attrs["config"]), indent=1)
        more = f"<details><summary>All settings</summary><pre>{escape(settings)}</pre></details>"
        parts.append(f"<details><summary>{escape(label)}</summary><dl>{rows}</dl>{more}</details>")
    return "\n".join(parts)


def facts(run: Run, folder: pathlib.Path | None) -> list[tuple[str, str]]:
    """In words, as far as the table and the run's folder know them."""
    attrs = run.results.attrs
    words = {"text": "corpus", "sha256 of the text": "corpus_sha256", "model": "model", "measured on": "input"}
    pairs = [(name, str(attrs.get(key, ""))) for name, key in words.items()]
    if folder is not None and (tested := finished.read_score(folder)):
        said = [f"{tested['bits_per_character']:.4f} bits per character"]
        said += [f"{tested['mask_bits']:.4f} under [MASK]"] if "mask_bits" in tested else []
        if "context_gain" in tested:  # runs of old do not tell it
            gain, free = tested["context_gain"], tested["context_free_bits"]
            said.append(f"context gain {gain:.4f} over {free:.4f} without context")
        pairs.append(("test split", "; ".join([*said, tested["protocol"]])))
    if folder is not None and (path := folder / "environment.json").exists():
        for number, session in enumerate(read_json(path, "move it away").get("sessions", []), 1):
            versions, device = (
                ", ".join(f"{name} {value}" for name, value in session.get(of, {}).items())
                for of in ("versions", "device")
            )
            commit = f"commit {session['commit']}" if session.get("commit") else ""
            said = [" ".join(session.get("command", [])), versions, device, commit]
            pairs.append((f"session {number}", "; ".join(filter(None, said))))
    return [(name, said) for name, said in pairs if said]


def links(folders: dict[str, pathlib.Path], root: pathlib.Path) -> str:
    """To figures and tables that are there, relative to the page or to the folder of figures where it lies."""
    drawn = root / "figures" if (root / "figures").is_dir() else root
    figures = sorted(drawn.glob("*.png"))
    tables = sorted(root.glob("*.csv")) + sorted(drawn.glob("*.csv"))
    for folder in folders.values():
        tables += [path for path in (folder / "results.csv", folder / "results.nc") if path.exists()]
    parts = []
    for name, paths in (("Figures", figures), ("Tables", dict.fromkeys(tables))):
        items = "".join(f"<li>{link(path, root)}</li>" for path in paths)
        parts.append(f"<h3>{name}</h3><ul>{items}</ul>" if items else "")
    return "\n".join(parts)


def link(path: pathlib.Path, root: pathlib.Path) -> str:
    target = pathlib.PurePath(os.path.relpath(path.resolve(), root.resolve())).as_posix()
    said = target.removeprefix("figures/")
    return f'<a href="{escape(quote(target))}">{escape(said)}</a>'
