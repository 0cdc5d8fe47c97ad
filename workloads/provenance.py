"""Where the rows of a trace come from and what was done to them; it always adds up."""

from collections.abc import Mapping
from copy import deepcopy
from typing import NotRequired, TypedDict


class Provenance(TypedDict):
    """The account of a trace, ready for JSON.

    Attributes
    ----------
    source : str
        Name of the file, the preset or the generator.
    sha256 : str or None
        Digest of the file's uncompressed bytes.
    rows_read, rows_kept : int
        Rows found, and rows that are left: ``rows_read == rows_kept + sum(dropped.values())``.
    dropped : dict of str to int
        Rows left out, by reason.
    added : dict of str to int, optional
        Copies of rows, by the transform that made them; they count as read, too.
    transforms : list of dict
        What was done, in order: ``name`` and the parameters.
    warnings : list of str
        What a reader should look at.
    notes : dict of str to str
        Format, licence, citation and the like.
    figures : dict of str to float, optional
        What the rows that are left are like: see `workloads.statistics.figures`.
    """

    source: str
    sha256: str | None
    rows_read: int
    rows_kept: int
    dropped: dict[str, int]
    added: NotRequired[dict[str, int]]
    transforms: list[dict[str, object]]
    warnings: list[str]
    notes: dict[str, str]
    figures: NotRequired[dict[str, float | None]]


def origin(
    source: str,
    rows: int,
    *,
    sha256: str | None = None,
    dropped: Mapping[str, int] | None = None,
    notes: Mapping[str, str] | None = None,
) -> Provenance:
    """Open the account of `rows` rows that were kept from a source.

    Parameters
    ----------
    source : str
        Name of the file, the preset or the generator.
    rows : int
        Rows kept.
    sha256 : str, optional
        Digest of the source's bytes.
    dropped : mapping of str to int, optional
        Rows left out, by reason.
    notes : mapping of str to str, optional
        Anything else worth keeping.

    Returns
    -------
    Provenance
        An account without transforms or warnings.

    Examples
    --------
    >>> origin("a.csv", 8, dropped={"short row": 2})["rows_read"]
    10
    """
    left_out = dict(dropped or {})
    return Provenance(
        source=source,
        sha256=sha256,
        rows_read=rows + sum(left_out.values()),
        rows_kept=rows,
        dropped=left_out,
        transforms=[],
        warnings=[],
        notes=dict(notes or {}),
    )


def after(
    account: Provenance, name: str, parameters: Mapping[str, object], rows_kept: int
) -> Provenance:
    """Return a copy of an account with one more transform.

    Parameters
    ----------
    account : Provenance
        The account so far; not changed.
    name : str
        Name of the transform; also the reason of the rows that it drops.
    parameters : mapping
        Its parameters and counts.
    rows_kept : int
        Rows left after it.

    Returns
    -------
    Provenance
        The new account.
    """
    result = deepcopy(account)
    result["transforms"].append({"name": name, **parameters})
    gone = account["rows_kept"] - rows_kept
    if gone > 0:
        result["dropped"][name] = result["dropped"].get(name, 0) + gone
    elif gone < 0:
        added = result.setdefault("added", {})
        added[name] = added.get(name, 0) - gone
        result["rows_read"] -= gone
    result["rows_kept"] = rows_kept
    return result
