"""Where the runs of a sweep are done: here, in local processes, or on a Dask cluster."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from threading import Thread
from typing import Any, ClassVar

from simulator.errors import RunError, UserError
from simulator.experiments.task import Done, Task, perform
from simulator.garbage import collect_less

MAX_DEATHS = 3
"""Workers may die so often in a row, without any run done between, before the sweep stops."""

CONNECT_S = 30
"""How long the Dask scheduler and its first worker are waited for, seconds."""

Indexed = tuple[int, Task]


@dataclass(frozen=True)
class Local:
    """Processes of this machine; a single one is this process itself.

    A worker that dies, because it was killed or memory ran out, is replaced and its run repeated.

    Parameters
    ----------
    jobs : int
    timeout_s : float, optional
        Wall-clock time that a run may take, seconds.
    """

    jobs: int = 1
    timeout_s: float | None = None

    @property
    def num_workers(self) -> int:
        """Number of runs at a time."""
        return self.jobs

    def run(self, tasks: Sequence[Indexed]) -> Iterator[Done]:
        """Yield the finished tasks as they come.

        Raises
        ------
        RunError
            If workers die again and again.
        """
        if self.jobs == 1 or len(tasks) < 2:
            for index, task in tasks:
                yield perform(index, task.spec, task.replication, timeout_s=self.timeout_s)
            return
        yield from self._pooled(dict(tasks))

    def _pooled(self, waiting: dict[int, Task]) -> Iterator[Done]:
        from joblib import Parallel, delayed
        from joblib.externals.loky.process_executor import BrokenProcessPool

        deaths = 0
        while waiting:
            pool = Parallel(
                n_jobs=self.jobs,
                return_as="generator_unordered",
                batch_size=1,
                initializer=begin_worker,
                initargs=(os.getpid(),),
            )
            calls = [
                delayed(perform)(i, t.spec, t.replication, timeout_s=self.timeout_s)
                for i, t in waiting.items()
            ]
            try:
                for done in pool(calls):
                    deaths = 0
                    del waiting[done.index]
                    yield done
            except BrokenProcessPool:
                deaths += 1
                # What may have killed the worker comes last, so that the others get done before.
                under_way = list(waiting)[: 2 * self.jobs]
                waiting |= {index: waiting.pop(index) for index in under_way}
                if deaths >= MAX_DEATHS:
                    raise RunError(
                        f"workers died {deaths} times without finishing a run (killed, or out of "
                        "memory?); finished runs are kept, the same command continues"
                    ) from None


def begin_worker(parent: int) -> None:
    """Set up a worker, which ends when its parent does, even if that is killed meanwhile."""
    collect_less()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    Thread(target=watch, daemon=True).start()


@dataclass(frozen=True)
class Dask:
    """A Dask cluster, through joblib.

    Parameters
    ----------
    scheduler : str
        Address of the scheduler, such as tcp://10.0.0.5:8786.
    """

    scheduler: str
    timeout_s: ClassVar[None] = None
    """Workers run tasks beside their main thread, where no alarm reaches them."""

    @property
    def num_workers(self) -> int:
        """Number of runs at a time, when asked."""
        with self._client() as client:
            return max(1, sum(map(int, client.nthreads().values())))

    def run(self, tasks: Sequence[Indexed]) -> Iterator[Done]:
        """Yield the finished tasks as they come.

        A worker that dies loses its runs to the others; one that is not equal to this machine in
        code, data and libraries gives rows with an error.

        Raises
        ------
        UserError
            If Dask is not installed or no scheduler answers.
        RunError
            If the cluster is lost.
        """
        if not tasks:
            return
        from joblib import Parallel, delayed, parallel_config

        with self._client(), parallel_config("dask", wait_for_workers_timeout=CONNECT_S):
            pool = Parallel(return_as="generator_unordered", batch_size=1)
            calls = [delayed(perform)(i, t.spec, t.replication, t.key) for i, t in tasks]
            try:
                yield from pool(calls)
            except (OSError, RuntimeError) as error:
                raise RunError(
                    f"the Dask cluster at {self.scheduler} was lost ({type(error).__name__}: "
                    f"{error}); finished runs are kept, the same command continues"
                ) from None

    @contextmanager
    def _client(self) -> Iterator[Any]:
        try:
            distributed: Any = import_module("distributed")
        except ImportError:
            raise UserError("--scheduler: needs Dask; install batchlab[dask]") from None
        try:
            client = distributed.Client(self.scheduler, timeout=CONNECT_S)
        except (OSError, ValueError, TimeoutError) as error:
            text = str(error) or type(error).__name__
            raise UserError(f"--scheduler {self.scheduler}: cannot be reached: {text}") from None
        with client:
            yield client


Executor = Local | Dask
