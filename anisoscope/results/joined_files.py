"""Tables on disk: NetCDF with a digest, and CSV, each written completely or not at all.

A NetCDF file holds the sha256 of its bytes, which every read checks, since most flipped bits would
be read as other numbers. It also holds the schema version, and other versions are rejected.
"""

import hashlib
import io
import pathlib
import re
import warnings

import pandas as pd
import xarray as xr

from anisoscope.utils import files
from anisoscope.utils.errors import RunError

SCHEMA = 6  # incremented when a name, a dimension or a quantity's definition changes
NO_DIGEST = b"0" * 64  # placeholder while the digest is computed
DIGEST = re.compile(rb"table_sha256.{8}(.{64})", re.DOTALL)  # NetCDF: name, type, length, text


def write_table(dataset: xr.Dataset, path: pathlib.Path) -> None:
    """Write NetCDF with its digest and schema as first attributes, completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    labeled = dataset.copy()
    labeled.attrs = {"table_sha256": NO_DIGEST.decode(), "schema": SCHEMA} | dataset.attrs
    content = bytes(labeled.to_netcdf(engine="scipy", format="NETCDF3_64BIT"))
    files.write_file(
        path, content.replace(NO_DIGEST, hashlib.sha256(content).hexdigest().encode(), 1)
    )


def write_csv(frame: pd.DataFrame, path: pathlib.Path) -> None:
    """Write CSV completely or not at all."""
    files.write_file(path, frame.to_csv(index=False))


def read_csv(path: pathlib.Path, *texts: str) -> pd.DataFrame:
    """Read CSV with these columns as text; only an empty number is missing.

    "None" may be a setting, and a variant may be named "nan".
    """
    kinds = dict.fromkeys(texts, str)
    frame = pd.read_csv(path, dtype=kinds, keep_default_na=False, na_values=[""])
    known = [name for name in texts if name in frame]
    return frame.assign(**frame[known].fillna(""))


def read_table(path: pathlib.Path) -> xr.Dataset:
    """Read a table; raise RunError if it is damaged or has another schema."""
    content = files.read_bytes(path)
    match = DIGEST.search(content)
    if match is None:
        raise _damaged(path, "it has no digest")
    blank = content[: match.start(1)] + NO_DIGEST + content[match.end(1) :]
    if hashlib.sha256(blank).hexdigest().encode() != match[1]:
        raise _damaged(path, "its content has changed since it was written")
    try:  # from memory: scipy leaves a damaged file open and mapped
        with (
            warnings.catch_warnings(action="ignore"),
            xr.open_dataset(io.BytesIO(content), engine="scipy") as dataset,
        ):
            table = dataset.load()
    except (TypeError, ValueError, IndexError, KeyError) as error:
        raise _damaged(path, (str(error).splitlines() or [repr(error)])[0]) from error
    table.attrs.pop("table_sha256")
    if (schema := table.attrs.pop("schema", None)) != SCHEMA:
        raise RunError(
            f"table {path} has schema {schema}, and {SCHEMA} is read; delete it, and the same command measures again"
        )
    return table


def _damaged(path: pathlib.Path, why: str) -> RunError:
    return RunError(
        f"table {path} is damaged ({why}); delete it, and the same command measures again"
    )
