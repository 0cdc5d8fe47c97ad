"""Requests that do not fit the context of the model: an error, left out, or shortened."""

from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from workloads.columns import name_row
from workloads.errors import WorkloadError

if TYPE_CHECKING:
    from workloads.trace import Trace

OnOverlong: TypeAlias = Literal["error", "drop", "clip"]


def limit_context(trace: "Trace", max_model_len: int, how: OnOverlong = "error") -> "Trace":
    """Make prompt plus output of every request fit a context.

    Parameters
    ----------
    trace : Trace
        The requests.
    max_model_len : int
        Longest prompt plus output in tokens, 2 or more.
    how : {'error', 'drop', 'clip'}, default 'error'
        What happens to a request that is too long. ``drop`` leaves it out, which lowers the
        rate. ``clip`` shortens the prompt as far as the output needs, and the output only if
        it does not fit with a prompt of one token.

    Returns
    -------
    Trace
        The same trace if all fit; else a new one whose provenance counts the requests that
        were too long and the tokens that were lost. Caps (``max_tokens``) are lowered to
        the room that the prompt leaves, and these are counted, too.

    Raises
    ------
    WorkloadError
        A request is too long and `how` is ``error``: names the first one.

    Examples
    --------
    >>> from workloads import Trace
    >>> trace = Trace([0.0, 1.0], [100, 5000], [10, 96])
    >>> limit_context(trace, 4096, "clip").prompt_tokens.tolist()
    [100, 4000]
    >>> limit_context(trace, 4096, "drop").provenance["dropped"]
    {'limit_context': 1}
    """
    if max_model_len < 2:
        raise WorkloadError("expected a max_model_len of at least 2", value=max_model_len)
    total = trace.prompt_tokens + trace.output_tokens
    over = total > max_model_len
    if how == "error" and over.any():
        raise _too_long(trace, int(np.argmax(over)), max_model_len)
    outputs = np.minimum(trace.output_tokens, max_model_len - 1)
    prompts = np.minimum(trace.prompt_tokens, max_model_len - outputs)
    caps = np.minimum(trace.max_tokens, max_model_len - prompts)
    lowered = (caps < trace.max_tokens) & ~over
    if not (over.any() or lowered.any()):
        return trace
    lost = total if how == "drop" else total - prompts - outputs
    parameters = {
        "max_model_len": max_model_len,
        "how": how,
        "too_long": int(over.sum()),
        "tokens_lost": int(lost[over].sum()),
        "caps_lowered": int(lowered.sum()),
    }
    return trace.derive(
        "limit_context",
        parameters,
        keep=~over if how == "drop" else None,
        prompt_tokens=prompts,
        output_tokens=outputs,
        max_tokens=caps,
    )


def _too_long(trace: "Trace", row: int, max_model_len: int) -> WorkloadError:
    prompt, output = int(trace.prompt_tokens[row]), int(trace.output_tokens[row])
    return WorkloadError(
        f"{name_row(trace.columns, row)} of {trace.provenance['source']} has {prompt} prompt and"
        f" {output} output tokens, expected at most max_model_len {max_model_len} together;"
        " on_overlong drop or clip goes on without the surplus"
    )
