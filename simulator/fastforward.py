"""The fast stepper: the same run as `simulator.engine.Engine`, to the last bit, in less time.

Two shortcuts. Decodes advance, or stand still, as a cohort, so that a step costs the same for any
batch size. And while the policy calls its plan steady and nothing can happen in between, steps
follow each other without an event and without asking the policy again.
"""

from math import inf

from simpy.events import Process

from policies.base import ALL_RUNNING, Decision, Plan, Release
from simulator.cohort import Cohort, CohortLedger, CohortRequest
from simulator.cost.base import StepWork
from simulator.decode_run import DecodeRun, eventless_steps
from simulator.engine import Engine
from simulator.observer import StepRecord
from simulator.request import Request
from simulator.rules import Listed, padded


class FastEngine(Engine):
    """A replica that takes every shortcut that leaves no trace; built like `Engine`."""

    request_type = CohortRequest
    ledger_type = CohortLedger

    def start(self) -> Process:
        """Start the process that runs the replica."""
        assert isinstance(self.kv, CohortLedger)
        self._cohort = Cohort(self.kv)
        self._together = self._stands = False
        return super().start()

    def _take_on(self, plan: Plan) -> Listed:
        """Return the chunks of a plan whose decodes go together, or all its work."""
        chunks = self._chunks(plan)
        self._together = chunks is not None
        self._stands = not plan.decodes
        if chunks is None:
            self._cohort.dissolve()
            return super()._take_on(plan)
        for request, tokens in chunks:
            self.kv.hold(request.id, request.computed + tokens)
        return chunks

    def _chunks(self, plan: Plan) -> Listed | None:
        """Return the chunks in running order, or None where the plain stepper has to look."""
        chunks: Listed = []
        total = need = 0
        if plan.decodes:
            if plan.decodes is not ALL_RUNNING or not self._gather():
                return None
            total, need = len(self._cohort), self._cohort.growth
        for rid, tokens in plan.chunks:
            request = self.running.get(rid)
            if request is None or request.is_decode or not 1 <= tokens <= request.remaining:
                return None
            total += tokens
            need += self.kv.need(request, tokens)
            chunks.append((request, tokens))
        limit = self._policy.limits.max_num_batched_tokens
        if total == 0 or (limit is not None and total > limit) or need > self.kv.free:
            return None
        if len(chunks) > 1:
            if len(dict(plan.chunks)) < len(chunks):
                return None
            chunks.sort(key=lambda item: item[0].order)
        return chunks

    def _gather(self) -> bool:
        """Make every running decode a member; False if one cannot be."""
        if len(self._cohort) == self.running.num_decodes:
            return True
        return all(self._join(r) for r in self.running if r.is_decode)

    def _join(self, request: Request) -> bool:
        """Let a decode join the cohort; False if it cannot."""
        assert isinstance(request, CohortRequest)
        if request.is_member:
            return True
        output = self._output_tokens[request.id]
        if not self._cohort.accepts(request, request.prompt_tokens + output - 1):
            return False
        self._cohort.join(request, output - request.generated)
        return True

    def _decode_growth(self) -> int:
        if len(self._cohort) == self.running.num_decodes:
            return self._cohort.growth
        return super()._decode_growth()

    def _context_tokens(self) -> int:
        if len(self._cohort) == self.running.num_decodes:
            return self._cohort.context_tokens
        return super()._context_tokens()

    def _stop(self, request: Request) -> None:
        member = self._cohort.members.get(request.id)
        if member is not None:
            self._cohort.leave(member)
        super()._stop(request)

    def _begin(self, listed: Listed, decision: Decision) -> float:
        """Start the step, or a run of steps of which the last is still to be ended."""
        if not self._together:
            return super()._begin(listed, decision)
        plan, start = decision.plan, self._env.now
        assert plan is not None
        duration = None
        if plan.steady and not (listed or self._copied_blocks or self._cohort.late):
            wake_at = inf if decision.wake_at is None else decision.wake_at
            start, duration = self._skip(plan, start, min(self._env.peek(), wake_at))
        if not self._stands:
            self._cohort.begin_step()
        work = self._work(listed)
        if duration is None:
            charged, end = self._charge(work, plan, start + self._copy_time())
        else:
            charged, end = padded(work, plan.shape), start + duration
        for request, _ in listed:
            if request.first_scheduled is None:
                request.first_scheduled = start
        self._tell_step(work, charged, start, end)
        return end

    def _skip(self, plan: Plan, start: float, limit: float) -> tuple[float, float | None]:
        """Do the steps that end before `limit` and in which nothing happens.

        Return when the next step starts, and its duration if it is known already.
        """
        if not len(self._cohort):
            return start, None
        charged = padded(self._work([]), plan.shape)
        run = eventless_steps(self._cohort, charged, self._cost, self._duration, start, limit)
        if run.ends:
            self._record_run(plan, charged, start, run)
        return run.now, run.next_duration

    def _record_run(
        self,
        plan: Plan,
        charged: StepWork,
        start: float,
        run: DecodeRun,
    ) -> None:
        """Apply a run of steps to the cohort and tell the observers."""
        cohort, steps = self._cohort, len(run.ends)
        size = len(cohort)
        context = cohort.context_tokens * steps + size * (steps * (steps - 1) // 2)
        previous = cohort.last_token
        cohort.advance(steps)
        record = StepRecord(
            start=start,
            end=run.ends[-1],
            num_steps=steps,
            first_step=run.durations[0],
            last_step=run.durations[-1],
            num_decodes=size,
            num_chunks=0,
            chunk_tokens=0,
            context_tokens=context,
            charged_tokens=charged.num_decodes * steps,
            kv_used=self.kv.used,
            kv_block_ticks=run.kv_block_ticks,
            num_waiting=len(self.waiting),
            num_running=len(self.running),
        )
        for observer in self._observers:
            observer.on_step(record)
        if plan.release is Release.PER_REQUEST:
            assert previous is not None, "a decode has delivered a token"
            gaps = [run.ends[0] - previous, *run.durations[1:]]
            cohort.last_token = run.ends[-1]
            for observer in self._observers:
                observer.on_gap_run(run.ends, gaps, size)

    def _work(self, listed: Listed) -> StepWork:
        """Return what the step computes: the cohort's tokens, unless it stands, and the chunks."""
        size = context = rows = 0
        if not self._stands:
            cohort = self._cohort
            size, context, rows = len(cohort), cohort.context_tokens, cohort.num_rows
        if not listed:
            return StepWork(size, context, (), size, rows)
        sampled = sum(r.computed + tokens == r.known for r, tokens in listed)
        return StepWork(
            size,
            context,
            tuple((tokens, r.computed) for r, tokens in listed),
            size + sampled,
            rows + sum(r.size for r, _ in listed),
        )

    def _advance(self, now: float, plan: Plan) -> dict[float, int]:
        """End a step of the cohort; return the gaps before the tokens it delivers."""
        if self._stands:
            return {}
        self._cohort.end_step()
        if plan.release is Release.PER_BATCH or not len(self._cohort):
            return {}
        return self._cohort.deliver(now)

    def _end(self, listed: Listed, plan: Plan) -> None:
        """Apply a finished step to the cohort as a whole and to the chunks one by one."""
        if not self._together:
            super()._end(listed, plan)
            return
        gaps = self._advance(self._env.now, plan)
        sampled = self._compute(listed)
        if plan.release is Release.PER_REQUEST:
            self._deliver(sampled, gaps)
        complete: list[Request] = []
        for member in self._cohort.ended():
            self._cohort.leave(member)
            complete.append(member)
        for request in sampled:
            if self._is_complete(request):
                complete.append(request)
            else:
                self._join(request)
        complete.sort(key=lambda request: request.order)
        self._retire(complete, plan)
