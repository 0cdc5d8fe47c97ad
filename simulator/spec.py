"""A run as data: what is simulated, validated, printable, hashable."""

import hashlib
import json
import pkgutil
from typing import Annotated, Any, TypeGuard

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    field_validator,
)

from policies import POLICIES
from policies.base import PolicySpec
from policies.routers import AnyRouter, RoundRobin
from simulator.cost.spec import CostSpec, TableSpec
from simulator.errors import UserError
from simulator.explain import explain, nearest, nested
from workloads.base import with_kind
from workloads.spec import PresetWorkload, WorkloadSpec


class Section(BaseModel):
    """A part of a specification: immutable, and nothing in it goes unnoticed."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @classmethod
    def model_json_schema(cls, *args: Any, **options: Any) -> dict[str, Any]:
        """Return the JSON Schema, with the description of every field; parameters as pydantic's."""
        from simulator.descriptions import DescribedSchema

        return super().model_json_schema(*args, **{"schema_generator": DescribedSchema} | options)


class EngineSpec(Section):
    """The serving engine around the policy."""

    block_size: int = Field(16, ge=1)
    """Tokens in a KV block."""
    num_blocks: int | None = Field(None, ge=1)
    """Usable KV blocks. None: what the GPU's memory holds, or no limit without a GPU."""
    max_model_len: int | None = Field(None, ge=2)
    """Largest number of prompt and output tokens. None: the model's context, or no limit."""
    enable_prefix_caching: bool = False
    """Keep full KV blocks for requests that begin with the same tokens (vLLM: on)."""
    async_scheduling: bool = False
    """Plan a step before the tokens of the step before are known (vLLM on GPUs: on)."""
    swap_space_gib: float = Field(4.0, ge=0, allow_inf_nan=False)
    """Host memory for swapped KV blocks, GiB; it matters to policies that swap."""
    swap_bandwidth_gb_per_s: float = Field(25.0, gt=0, allow_inf_nan=False)
    """Speed of copies between host and GPU, 1e9 bytes per second; for the table cost only."""
    num_replicas: int = Field(1, ge=1)
    """Equal replicas, each with its own policy, KV cache and machine."""
    router: AnyRouter = RoundRobin()
    """Picks the replica of an arriving request."""


class Goodput(Section):
    """Service-level objectives; a request is good if it meets all that are given."""

    ttft_ms: float | None = Field(None, gt=0)
    """Longest time to the first token, ms."""
    tpot_ms: float | None = Field(None, gt=0)
    """Longest mean time between tokens, ms; a single token meets it."""
    e2el_ms: float | None = Field(None, gt=0)
    """Longest time to the last token, ms."""


class Measure(Section):
    """What is measured, and over which part of the run."""

    warmup_s: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Requests that arrive earlier are simulated but not counted, seconds."""
    horizon_s: float | None = Field(None, gt=0, allow_inf_nan=False)
    """The run is cut here, seconds. None: it ends when all requests are done."""
    goodput: Goodput | None = None
    """Service-level objectives."""
    percentiles: tuple[float, ...] = (50, 90, 99)
    """Percentiles of every latency, between 0 and 100."""

    @field_validator("percentiles", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return value.split(",") if isinstance(value, str) else value

    @field_validator("percentiles")
    @classmethod
    def _between(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        for percentile in value:
            if not 0 < percentile < 100:
                raise ValueError(f"{percentile:g}: expected numbers between 0 and 100")
        return value


DEFAULT_POLICY = "vllm-v1"
"""Policy of a specification that names none."""


def find_policy(kind: str) -> type[PolicySpec]:
    """Return the policy class of that name, built in or ``module:Class``.

    Raises
    ------
    ValueError
        If there is none; the nearest names are in the message.
    """
    known = {cls.model_fields["kind"].default: cls for cls in POLICIES}
    if kind in known:
        return known[kind]
    if ":" in kind:
        try:
            found = pkgutil.resolve_name(kind)
            if _is_policy(found):
                found.model_rebuild()  # says now what is wrong with its parameters
        except Exception as error:  # whatever the module raises while it is loaded
            hint = " (is its folder on PYTHONPATH?)" if isinstance(error, ImportError) else ""
            raise ValueError(f"{kind!r} cannot be loaded: {error}{hint}") from None
        if not _is_policy(found):
            raise ValueError(f"policy {kind!r} is not a subclass of policies.PolicySpec")
        return found
    raise ValueError(
        f"unknown policy {kind!r}; {nearest(kind, known)}, or module:Class of your own"
    )


def _is_policy(found: object) -> TypeGuard[type[PolicySpec]]:
    return isinstance(found, type) and issubclass(found, PolicySpec)


def _read_policy(value: object) -> object:
    if isinstance(value, str):
        value = {"kind": value}
    if not isinstance(value, dict):
        return value
    cls = find_policy(str(value.get("kind", DEFAULT_POLICY)))
    parameters = {key: item for key, item in value.items() if key != "kind"}
    try:
        return cls.model_validate(parameters)
    except ValidationError as error:
        raise nested(error, cls) from None


def kind_of(part: BaseModel) -> str | None:
    """Return the name under which a part of a specification is chosen; None if it has no kinds."""
    cls = type(part)
    if isinstance(part, PolicySpec) and cls not in POLICIES:
        return f"{cls.__module__}:{cls.__qualname__}"
    return str(cls.model_fields["kind"].default) if "kind" in cls.model_fields else None


def _write_policy(policy: PolicySpec) -> dict[str, Any]:
    return {"kind": kind_of(policy)} | policy.model_dump(mode="json", exclude={"kind"})


AnyPolicy = Annotated[
    PolicySpec, BeforeValidator(_read_policy), PlainSerializer(_write_policy, return_type=dict)
]
"""A policy in a specification: its name, a mapping with `kind`, or an instance."""


class RunSpec(Section):
    """Everything that determines the result of a run.

    Examples
    --------
    >>> spec = RunSpec(policy={"kind": "static", "max_batch_size": 4})
    >>> RunSpec.from_yaml(spec.to_yaml()) == spec
    True
    """

    workload: WorkloadSpec = Field(
        default_factory=lambda: PresetWorkload(name="azure-conv-2023", num_requests=400)
    )
    """Who asks, when, for how much."""
    policy: AnyPolicy = Field(default_factory=lambda: find_policy(DEFAULT_POLICY)())
    """What runs next."""
    engine: EngineSpec = EngineSpec()
    """The replica around the policy."""
    cost: Annotated[CostSpec, with_kind(lambda data: "table")] = TableSpec()
    """How long a step takes."""
    measure: Measure = Measure()
    """What is measured."""
    seed: int = Field(0, ge=0)
    """Root of all random streams."""

    @classmethod
    def from_dict(cls, data: object, where: str = "specification") -> "RunSpec":
        """Validate plain data.

        Raises
        ------
        UserError
            One line: where, which value, what was expected.
        """
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise UserError(explain(error, where, cls)) from None

    @classmethod
    def from_yaml(cls, text: str, where: str = "specification") -> "RunSpec":
        """Read a specification from YAML."""
        return cls.from_dict(parse_yaml(text, where), where)

    @property
    def policy_kind(self) -> str:
        """Name of the policy, as it stands in a specification."""
        return str(kind_of(self.policy))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that validates to an equal specification."""
        return self.model_dump(mode="json", exclude_none=True, exclude_defaults=False)

    def to_yaml(self) -> str:
        """Return the specification as YAML."""
        import yaml

        return yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True)

    def content_hash(self) -> str:
        """Return the SHA-256 of the canonical specification."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def parse_yaml(text: str, where: str) -> dict[str, Any]:
    """Return the mapping in a YAML text.

    Raises
    ------
    UserError
        If it is no YAML, or no mapping.
    """
    import yaml

    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark is not None else ""
        problem = " ".join(str(getattr(error, "problem", error)).split())
        raise UserError(f"{where}{line}: not valid YAML: {problem}") from None
    except (ValueError, OverflowError) as error:  # such as a date of the 45th
        raise UserError(f"{where}: not valid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise UserError(f"{where}: not valid YAML: nested too deeply") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise UserError(f"{where}: expected a mapping with keys such as policy, workload, cost")
    return data
