"""Write the tables of verdicts into the pages of findings/, between the marks that name them.

    .venv/bin/python -m findings.claims.page_tables

`<!-- claims: PAPER -->` has a row for each claim of a paper, `<!-- counts -->` the counts of all
verdicts, `<!-- bells -->` a row for each pretrained decoder, `<!-- texts -->` bells of three texts; all end
at `<!-- end -->`.
"""

import pathlib
import re
from collections.abc import Iterator

import pandas as pd

from anisoscope.engine.intervals import LEVEL
from anisoscope.results import joined_files
from findings.claims import massive_vectors
from findings.claims.claim_entries import CLAIMS
from findings.claims.profiles import PART
from findings.claims.verdicts import SINGLE, TOO_WIDE, UNCOUNTED, VERDICTS
from findings.scripts.shared_tables import NAMES, RESULTS

MARK = re.compile(
    r"(<!-- (claims|counts|bells|texts)(?:: (.+?))? -->\n).*?(<!-- end -->)", re.DOTALL
)
PAGES = pathlib.Path("findings")
CLAIM_COLUMNS = ("claim", "smallest effect", "here, least to largest", "models", "after correction")


def format_number(value: float) -> str:
    text = (
        f"{value:.1f}"
        if abs(value) >= 10
        else f"{value:.2g}"
        if abs(value) >= 1
        else f"{value:.3f}"
    )
    return text.replace("-", "\N{MINUS SIGN}")


def list_claims(frame: pd.DataFrame, paper: str) -> Iterator[tuple[str, ...]]:
    """Yield a row for each claim: range of its effects, verdicts, and those that survive."""
    yield CLAIM_COLUMNS
    for name, claim in CLAIMS.items():
        rows = frame[frame["claim"].eq(name) & frame["role"].ne(UNCOUNTED)]
        if claim.paper != paper or rows.empty:
            continue
        judged = rows.loc[rows["reason"].isin(["", TOO_WIDE]), "effect"]
        ends = dict.fromkeys(map(format_number, (judged.min(), judged.max())))
        sure = rows[(rows["p_project"] < 1 - LEVEL) & rows["reason"].eq("")]
        yield (
            claim.wording + " (low bar)" * bool(claim.low_bar),
            f"{claim.smallest:g}",
            " to ".join(ends) if len(judged) else "not tested",
            count_words(rows),
            count_words(sure) or "none",
        )


def count_words(rows: pd.DataFrame) -> str:
    counts = rows["verdict"].value_counts()
    return ", ".join(f"{counts[found]} {found}" for found in VERDICTS if found in counts)


def list_counts(counts: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    """Yield a row for each group of verdicts; after a slash how many survive the correction."""
    yield ("group", *VERDICTS, "of these not tested")
    for _, row in counts.iterrows():
        single = row["group"].endswith("single models")
        cells = []
        for found in VERDICTS:
            sure = row.get(f"{found}, corrected")
            shown = row[found] and not single and found != VERDICTS[-1]
            cells.append(f"{row[found]} / {sure}" if shown else f"{row[found]}")
        yield (row["group"], *cells, str(row["not tested"]))


def list_bells(frame: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    """Yield the bells of single models by both definitions, with and without the first token."""
    yield ("model", "positions", "bell from block 1", "bell with the embedding as first end")
    rows = frame[(frame["test"] == SINGLE) & frame["claim"].str.startswith("decoder_bell")]
    cells = {
        (row.model, row.claim): f"{format_interval(row.effect, row.low, row.high)} {row.verdict}"
        for row in rows.itertuples()
    }
    for model in [name for name in NAMES if (name, "decoder_bell") in cells]:
        for suffix, side in (("", "all"), (f", {PART}", PART)):
            bells = (cells[model + suffix, f"decoder_bell{x}"] for x in ("", "_with_embedding"))
            yield ("" if suffix else NAMES[model], side, *bells)


def list_bells_of_texts(heights: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    """Yield the bells of each decoder and text, with all vectors and without two sets of them."""
    yield ("model", "text", "all vectors", "without first tokens", "without massive vectors")
    parts = ("anisotropy", "without_first", "rest")
    frames = [massive_vectors.judge_bells(heights, part) for part in parts]
    bells = pd.concat(frames, keys=parts).set_index(["model", "text"])
    for model in [name for name in NAMES if name in bells.index]:
        for text, rows in bells.loc[model].groupby("text"):
            cells = (
                f"*{format_number(row.effect)}*" * (row.verdict == VERDICTS[-1])
                or format_number(row.effect)
                for row in rows.itertuples()
            )
            yield ("" if text != massive_vectors.FIRST_TEXT else NAMES[model], text, *cells)


def format_interval(value: float, low: float, high: float) -> str:
    return f"{format_number(value)} [{format_number(low)}, {format_number(high)}]"


def fill(text: str, frame: pd.DataFrame, counts: pd.DataFrame, heights: pd.DataFrame) -> str:
    """Return a page's text with its tables written anew."""

    def write(found: re.Match[str]) -> str:
        rows = {
            "counts": lambda: list_counts(counts),
            "claims": lambda: list_claims(frame, found[3]),
            "bells": lambda: list_bells(frame),
            "texts": lambda: list_bells_of_texts(heights),
        }[found[2]]()
        head, *body = (f"| {' | '.join(row)} |" for row in rows)
        rule = "| --- " * (head.count(" | ") + 1) + "|"
        return f"{found[1]}\n" + "\n".join([head, rule, *body]) + f"\n\n{found[4]}"

    return MARK.sub(write, text)


def read_tables() -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Read verdicts.csv, counts.csv and the heights of layers."""
    frame = joined_files.read_csv(RESULTS / "verdicts.csv", "model", "reason")
    heights = pd.read_csv(massive_vectors.TABLES / "heights.csv")
    return frame, pd.read_csv(RESULTS / "counts.csv"), heights


def main() -> None:
    tables = read_tables()
    for path in sorted(PAGES.glob("*.md")):
        path.write_text(fill(path.read_text(), *tables))


if __name__ == "__main__":
    main()
