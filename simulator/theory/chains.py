"""Markov chains with finitely many states, the rest being cut off."""

import numpy as np
from scipy.sparse import csc_array, dok_array, eye_array
from scipy.sparse.linalg import spsolve

from simulator.stats import Floats

LARGEST_TAIL = 1e-12
"""Probability of the last states above which a chain counts as cut too early."""


def stationary(moves: Floats) -> Floats:
    """Return the stationary law of a chain; moves beyond the last state end in it.

    Parameters
    ----------
    moves : array of shape (n, n)
        Probability of each move, row by row; what a row lacks goes to the last state.

    Returns
    -------
    array of shape (n,)

    Examples
    --------
    >>> moves = np.zeros((5, 5))
    >>> moves[:2, :2] = [[0.5, 0.5], [0.75, 0.25]]
    >>> moves[2:, 0] = 1.0
    >>> stationary(moves)[:2].round(3).tolist()
    [0.6, 0.4]
    """
    moves = moves.copy()
    moves[:, -1] += 1 - moves.sum(axis=1)
    size = len(moves)
    equations = moves.T - np.eye(size)
    equations[-1] = 1.0
    return _checked(np.linalg.solve(equations, np.eye(size)[-1]))


def stationary_sparse(moves: dok_array) -> Floats:
    """Return the stationary law of a chain in which most moves are impossible.

    Parameters
    ----------
    moves : sparse array of shape (n, n)
        Probability of each move; rows sum to 1.

    Returns
    -------
    array of shape (n,)

    Examples
    --------
    >>> moves = dok_array((5, 5))
    >>> for source, target, chance in ((0, 0, 0.5), (0, 1, 0.5), (1, 0, 0.75), (1, 1, 0.25)):
    ...     moves[source, target] = chance
    >>> for source in (2, 3, 4):
    ...     moves[source, 0] = 1.0
    >>> stationary_sparse(moves)[:2].round(3).tolist()
    [0.6, 0.4]
    """
    size = moves.shape[0]
    equations = (moves.T - eye_array(size)).tolil()
    equations[-1] = 1.0
    right = np.zeros(size)
    right[-1] = 1.0
    return _checked(spsolve(csc_array(equations), right))


def _checked(chance: Floats) -> Floats:
    assert chance[-3:].max() < LARGEST_TAIL, "cut too early"
    return chance
