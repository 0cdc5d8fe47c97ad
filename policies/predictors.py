"""Predictors of output lengths: what an order may believe about work that nobody has seen yet."""

from abc import ABC, abstractmethod
from math import exp
from typing import Annotated, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from policies.base import Parameters, RequestView, View, by_name


class Predictor(ABC):
    """Gives the expected output length of a request when it arrives."""

    needs_oracle: bool = False
    """Whether it reads the true lengths."""

    @abstractmethod
    def output_tokens(self, request: RequestView, view: View) -> float:
        """Return the expected number of output tokens."""

    def learn(self, request: RequestView) -> None:
        """Take note of a request that left, with all the tokens it got."""
        return


class Known(Predictor):
    """The true length, times a random factor that belongs to the request."""

    needs_oracle = True

    def __init__(self, sigma: float, seed: int) -> None:
        self._sigma = sigma
        self._seed = seed

    def output_tokens(self, request: RequestView, view: View) -> float:
        """Return the true number, distorted."""
        assert view.oracle is not None, "the policy declares needs_oracle"
        tokens = float(view.oracle.output_tokens(request))
        if not self._sigma:
            return tokens
        rng = np.random.default_rng([self._seed, request.id])
        return tokens * exp(self._sigma * rng.standard_normal())


class Same(Predictor):
    """The same number for everyone."""

    def __init__(self, tokens: float) -> None:
        self._tokens = tokens

    def output_tokens(self, request: RequestView, view: View) -> float:
        """Return the number."""
        return self._tokens


class MeanSoFar(Predictor):
    """The mean of the outputs that the tenant's requests had so far."""

    def __init__(self, first: float) -> None:
        self._first = first
        self._sums: dict[str, tuple[int, int]] = {}

    def output_tokens(self, request: RequestView, view: View) -> float:
        """Return the mean, or the given number before the tenant's first request has left."""
        number, tokens = self._sums.get(request.tenant, (0, 0))
        return tokens / number if number else self._first

    def learn(self, request: RequestView) -> None:
        """Count in a request that got any tokens."""
        if request.generated:
            number, tokens = self._sums.get(request.tenant, (0, 0))
            self._sums[request.tenant] = number + 1, tokens + request.generated


class PredictorSpec(Parameters, ABC):
    """Parameters of a predictor."""

    @abstractmethod
    def build(self) -> Predictor:
        """Return a fresh predictor."""


class OraclePredictor(PredictorSpec):
    """Knows every output length: the best case, which no server has."""

    kind: Literal["oracle"] = "oracle"

    def build(self) -> Predictor:
        """Return a fresh predictor."""
        return Known(0.0, 0)


class NoisyOracle(PredictorSpec):
    """The true length times a log-normal factor of median 1, one for each request.

    The factor depends on seed and request number alone, so every policy meets the same errors.

    Examples
    --------
    >>> from policies.testing import ScriptedRequest, ScriptedView
    >>> view = ScriptedView(oracle={0: 100})
    >>> predictor = NoisyOracle(sigma=0.5).build()
    >>> round(predictor.output_tokens(ScriptedRequest(0), view), 1)
    106.5
    """

    kind: Literal["noisy-oracle"] = "noisy-oracle"
    sigma: float = Field(0.5, ge=0, allow_inf_nan=False)
    """Standard deviation of the logarithm of the factor; 0: no error."""
    seed: int = Field(0, ge=0)
    """Seed of the factors."""

    def build(self) -> Predictor:
        """Return a fresh predictor."""
        return Known(self.sigma, self.seed)


class ConstantPredictor(PredictorSpec):
    """Expects the same of everyone; what remains is the order of the prompts."""

    kind: Literal["constant"] = "constant"
    output_tokens: float = Field(256.0, gt=0, allow_inf_nan=False)
    """Expected output tokens."""

    def build(self) -> Predictor:
        """Return a fresh predictor."""
        return Same(self.output_tokens)


class ClassMean(PredictorSpec):
    """Expects the mean of the tenant's outputs so far.

    Examples
    --------
    >>> from policies.testing import ScriptedRequest, ScriptedView
    >>> predictor = ClassMean(first_output_tokens=50).build()
    >>> for tokens in (10, 30):
    ...     predictor.learn(ScriptedRequest(0, tenant="chat", generated=tokens))
    >>> arriving = [ScriptedRequest(1, tenant="chat"), ScriptedRequest(2, tenant="code")]
    >>> [predictor.output_tokens(request, ScriptedView()) for request in arriving]
    [20.0, 50.0]
    """

    kind: Literal["class-mean"] = "class-mean"
    first_output_tokens: float = Field(256.0, gt=0, allow_inf_nan=False)
    """Expected output tokens of a tenant of which no request has left yet."""

    def build(self) -> Predictor:
        """Return a fresh predictor."""
        return MeanSoFar(self.first_output_tokens)


PREDICTORS = (OraclePredictor, NoisyOracle, ConstantPredictor, ClassMean)
"""The predictors."""

AnyPredictor = Annotated[
    OraclePredictor | NoisyOracle | ConstantPredictor | ClassMean,
    Field(discriminator="kind"),
    BeforeValidator(by_name),
]
"""Any of them, told apart by `kind`; a bare name stands for its defaults."""
