"""Build the cost model of a model on a GPU from its parts."""

from dataclasses import replace

from simulator.cost.compiled import compile_tables
from simulator.cost.engine_profiles import EngineProfile, find_engine_profile
from simulator.cost.gpus import default_kappa
from simulator.cost.models import Dtype, ModelArchitecture, find_model
from simulator.cost.profile import OperatorProfile, load_profile
from simulator.cost.table import TableCost


def table_cost(
    gpu: str,
    model: str,
    tp: int = 1,
    *,
    dtype: Dtype = "bfloat16",
    engine_profile: str = "generic",
    kappa_mixed: float | None = None,
) -> TableCost:
    """Build the cost model of a known model on a known GPU.

    Parameters
    ----------
    gpu : str
        Key of `GPUS`.
    model : str
        Key of `MODELS`.
    tp : int
        Number of GPUs that share every layer: 1, 2, 4 or 8.
    dtype : {"bfloat16", "fp8"}
        Number format of linear layers and KV cache.
    engine_profile : str
        Key of `ENGINE_PROFILES`.
    kappa_mixed : float, optional
        Cost of mixing decodes with chunks, at least 0; by default that of the GPU.

    Returns
    -------
    TableCost
        A fresh model.

    Raises
    ------
    UserError
        If a name is unknown, `tp` does not divide the model, something the model needs was not
        measured, or the data file is damaged.

    Examples
    --------
    >>> table_cost("a100", "llama-3.1-8b").kappa_mixed
    1.6
    """
    profile = load_profile(gpu, dtype)
    head = load_profile(gpu) if dtype != "bfloat16" else profile
    engine = find_engine_profile(engine_profile)
    architecture = find_model(model).in_dtype(dtype)
    return assemble(profile, head, architecture, tp, engine=engine, kappa_mixed=kappa_mixed)


def assemble(
    profile: OperatorProfile,
    head_profile: OperatorProfile,
    model: ModelArchitecture,
    tp: int,
    *,
    engine: EngineProfile,
    kappa_mixed: float | None = None,
    overlap: bool | None = None,
    graph_tokens: int | None = None,
) -> TableCost:
    """Build the cost model of any model on any measured GPU.

    Parameters
    ----------
    profile, head_profile : OperatorProfile
        Timings of the layers, and of the output head (in bfloat16).
    model : ModelArchitecture
        The model, in the number format of `profile`.
    tp : int
        Number of GPUs that share every layer: 1, 2, 4 or 8.
    engine : EngineProfile
        What the engine adds.
    kappa_mixed : float, optional
        Cost of mixing decodes with chunks, at least 0; by default that of the GPU.
    overlap : bool, optional
        Whether the host works while the GPU does; by default that of the engine profile.
    graph_tokens : int, optional
        Tokens up to which a step runs from a recorded graph; by default that of the engine profile.

    Returns
    -------
    TableCost
        A fresh model.

    Raises
    ------
    UserError
        As `table_cost`.

    Examples
    --------
    >>> from simulator.cost.engine_profiles import ENGINE_PROFILES
    >>> from simulator.cost.models import MODELS
    >>> h100 = load_profile("h100")
    >>> engine = ENGINE_PROFILES["generic"]
    >>> assemble(h100, h100, MODELS["qwen3-8b"], 1, engine=engine).engine_profile
    'generic'
    """
    heads, kv_heads = model.heads(tp)
    if kappa_mixed is None:
        kappa_mixed = default_kappa(profile.gpu, heads / kv_heads)
    if overlap is not None:
        engine = replace(engine, overlap=overlap)
    tables = compile_tables(profile, model, tp, head_profile)
    limit = engine.graph_tokens if graph_tokens is None else graph_tokens
    if engine.eager_ms and limit < tables.layers.last:
        tables = replace(tables, layers=tables.layers.with_step(limit, engine.eager_ms / 1e3))
    return TableCost(tables, engine, tp, kappa_mixed)
