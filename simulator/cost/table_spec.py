"""What a person writes to have steps timed like a real model on a real GPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from simulator.cost.assemble import assemble
from simulator.cost.engine_profiles import find_engine_profile
from simulator.cost.gpus import Gpu, find_gpu
from simulator.cost.memory import KvCapacity, kv_capacity
from simulator.cost.model_file import read_model_file
from simulator.cost.models import Dtype, ModelArchitecture, check_tp, find_model
from simulator.cost.noise import NoisyCost
from simulator.cost.profile import OperatorProfile, load_profile, read_profile
from simulator.cost.spec_base import BaseCostSpec
from simulator.cost.table import TableCost
from simulator.errors import UserError


@contextmanager
def _about(key: str) -> Iterator[None]:
    """Let an error name the key of the specification that it is about."""
    try:
        yield
    except UserError as error:
        context = {"key": key, "text": str(error)}
        raise PydanticCustomError("nested", "{text}", context) from None


class TableSpec(BaseCostSpec):
    """Step times of a model on a GPU, from measured kernels.

    Examples
    --------
    >>> spec = TableSpec(gpu="h100", model="llama-3.1-8b")
    >>> spec.cost().calibration["num_decodes"]
    (1.0, 2048.0)
    """

    kind: Literal["table"] = "table"
    gpu: str = "h100"
    """GPU type: a key of `GPUS`."""
    model: str = "llama-3.1-8b"
    """Model: a key of `MODELS`."""
    architecture: str | None = None
    """Path of a Hugging Face-style config.json of a dense decoder, in place of `model`."""
    profile: str | None = None
    """Path of a profile that `batchlab calibrate` wrote, in place of `gpu` and `dtype`."""
    tp: int = 1
    """GPUs that share every layer: 1, 2, 4 or 8."""
    dtype: Dtype = "bfloat16"
    """Number format of linear layers and KV cache; fp8 is of low confidence."""
    kv_dtype: Dtype | None = None
    """Number format of the KV cache, where it is not `dtype`: bfloat16 under fp8."""
    engine_profile: str = "generic"
    """What the engine adds: a key of `ENGINE_PROFILES`."""
    graph_tokens: int | None = Field(None, ge=0)
    """Tokens up to which a step runs from a recorded graph; by default as the engine profile has
    it, and without effect where that adds nothing beyond them."""
    kappa_mixed: float | None = Field(None, ge=0, allow_inf_nan=False)
    """Factor on decode attention in a step with prompt chunks; by default that of the GPU."""
    overlap: bool | None = None
    """Whether the host works while the GPU does; by default that of the engine profile."""
    noise_cv: float = Field(0.0, ge=0, le=1)
    """Run-to-run noise of a step: standard deviation over mean (0.02 to 0.03 is usual)."""
    memory_utilisation: float = Field(0.9, gt=0, le=1)
    """Fraction of the GPU memory that the engine may use."""

    @model_validator(mode="before")
    @classmethod
    def _named_after_files(cls, data: Any) -> Any:
        """Let the files say which GPU, number format and model it is."""
        if not isinstance(data, dict):
            return data
        named = dict(data)
        if isinstance(data.get("profile"), str):
            with _about("profile"):
                profile = read_profile(Path(data["profile"]))
            named = {"gpu": profile.gpu.key, "dtype": profile.dtype, **named}
        if isinstance(data.get("architecture"), str):
            with _about("architecture"):
                model = read_model_file(Path(data["architecture"]))
            named = {"model": model.key, **named}
        return named

    @field_validator("engine_profile")
    @classmethod
    def _known_engine_profile(cls, name: str) -> str:
        return find_engine_profile(name).name

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        with _about("gpu"):
            gpu = self.find_gpu()
        with _about("model"):
            model = self.find_model()
        files = self.profile is not None or self.dtype != "bfloat16"
        with _about("dtype"):
            dtype = self.find_profile().dtype if files else self.dtype
        named = (("gpu", self.gpu, gpu.key), ("dtype", self.dtype, dtype))
        for name, given, expected in (*named, ("model", self.model, model.key)):
            if given != expected:
                with _about(name):
                    raise UserError(f"{given} contradicts the file, which is for {expected}")
        with _about("tp"):
            check_tp(model, self.tp)
        if self.kv_dtype == "fp8" != self.dtype:
            with _about("kv_dtype"):
                raise UserError("fp8 needs dtype fp8: no other attention was measured so")
        return self

    def find_model(self) -> ModelArchitecture:
        """Return the shape of the model, in `dtype`."""
        if self.architecture is None:
            model = find_model(self.model)
        else:
            model = read_model_file(Path(self.architecture))
        model = model.in_dtype(self.dtype)
        if self.kv_dtype is None:
            return model
        return replace(model, kv_bytes=model.in_dtype(self.kv_dtype).kv_bytes)

    def find_gpu(self) -> Gpu:
        """Return the record of the GPU."""
        return find_gpu(self.gpu) if self.profile is None else self.find_profile().gpu

    def find_profile(self) -> OperatorProfile:
        """Return the measured operators."""
        if self.profile is None:
            return load_profile(self.gpu, self.dtype)
        return read_profile(Path(self.profile))

    def cost(self) -> TableCost:
        """Return the cost model without noise.

        Raises
        ------
        UserError
            If something that the model needs was not measured.
        """
        profile = self.find_profile()
        shipped_fp8 = self.profile is None and self.dtype != "bfloat16"
        return assemble(
            profile,
            load_profile(self.gpu) if shipped_fp8 else profile,
            self.find_model(),
            self.tp,
            engine=find_engine_profile(self.engine_profile),
            kappa_mixed=self.kappa_mixed,
            overlap=self.overlap,
            graph_tokens=self.graph_tokens,
        )

    def build(self, rng: np.random.Generator) -> TableCost | NoisyCost:
        """Return the cost model; only noise draws from `rng`."""
        cost = self.cost()
        return NoisyCost(cost, self.noise_cv, rng) if self.noise_cv else cost

    def kv_capacity(
        self, *, block_size: int = 16, max_num_batched_tokens: int = 8192
    ) -> KvCapacity:
        """Return the KV cache of one engine on this hardware.

        Parameters
        ----------
        block_size : int
            Tokens per block, at least 1.
        max_num_batched_tokens : int
            Token budget of a step, at least 1.

        Returns
        -------
        KvCapacity
            Blocks and the budget they come from.

        Raises
        ------
        UserError
            If the model does not fit.

        Examples
        --------
        >>> TableSpec().kv_capacity().num_blocks
        27276
        """
        return kv_capacity(
            self.find_gpu(),
            self.find_model(),
            self.tp,
            memory_utilisation=self.memory_utilisation,
            block_size=block_size,
            max_num_batched_tokens=max_num_batched_tokens,
        )
