"""The fast stepper: the same run as `simulator.engine.Engine`, to the last bit, in less time.

Two shortcuts. Decodes advance, or stand still, as a cohort, so that a step costs the same for any
batch size. And while the policy calls its plan steady and nothing can happen in between, steps
follow each other without an event and without asking the policy again.
"""

from collections.abc import Generator, Sequence

from simpy.events import Event, Process

from policies.base import ALL_DECODES, ALL_RUNNING, Decision, KvOp, Plan, Release
from simulator.clock import DECIDE, STEP_DONE, TICKS_PER_SECOND, At
from simulator.cohort import Cohort, CohortRequest
from simulator.cohort_ledgers import CachedCohortLedger, CohortLedger
from simulator.cost.base import StepWork
from simulator.decode_run import eventless_steps, times_runs
from simulator.engine import Engine, Happened
from simulator.observer import StepRecord
from simulator.request import Request
from simulator.rules import Listed, padded


class FastEngine(Engine):
    """A replica that takes every shortcut that leaves no trace; built like `Engine`."""

    request_type = CohortRequest
    ledger_type = CohortLedger
    cached_ledger_type = CachedCohortLedger

    def start(self) -> Process:
        """Start the process that runs the replica."""
        assert isinstance(self.kv, CohortLedger | CachedCohortLedger)
        self._cohort = Cohort(self.kv)
        self._run_cost = self._cost if times_runs(self._cost) else None
        self._together = self._stands = False
        return super().start()

    def _step(self, decision: Decision, work: Listed) -> Generator[Event, None, None]:
        """Go through a step, and through those that the policy foretold."""
        env = self._env
        while True:
            plan = decision.plan
            assert plan is not None
            end = self._begin(work, decision)
            if not env.pass_to(end):
                yield At(env, end - env.now, STEP_DONE)
            self._end(work, plan)
            if env.peek() <= end:  # other events of this moment come first
                yield At(env, 0.0, DECIDE)
            if not self._is_foretold(decision, plan):
                return
            decision, work = ALL_DECODES, []

    def _is_foretold(self, decision: Decision, plan: Plan) -> bool:
        """Whether a step of all decodes follows without asking; else note that a step is done.

        Where nobody is left, the policy foretold that there is nothing to ask, either.
        """
        told = plan.until_arrival and plan.release is Release.PER_REQUEST
        if told and not self._happened and not self._watchers and decision.wake_at is None:
            number = len(self.running)
            if not number:
                self._release = None
                return False
            if number == len(self._cohort.members) and self._all_advance():
                self._together, self._stands = True, False
                return True
        self._happened |= Happened.STEP_DONE
        return False

    def _take_on(self, plan: Plan) -> Listed:
        """Return the chunks of a plan whose decodes go together, or all its work."""
        is_plain = plan.decodes is ALL_RUNNING and not plan.chunks
        chunks = [] if is_plain and self._all_advance() else self._chunks(plan)
        self._together = chunks is not None
        self._stands = not plan.decodes
        if chunks is None:
            self._cohort.dissolve()
            return super()._take_on(plan)
        if chunks and not self._stands:
            self._cohort.begin_step()
        for request, tokens in chunks:
            self.kv.hold(request.id, request.computed + tokens)
        return chunks

    def _repeat(self, journal: Sequence[KvOp]) -> None:
        members = self._cohort.members
        if any(rid in members for _, rid, _ in journal):
            self._cohort.dissolve()
        super()._repeat(journal)

    def _hold_decodes(self) -> None:
        if self._gather():
            self._cohort.begin_step()
        else:
            self._cohort.dissolve()
            super()._hold_decodes()

    def _all_advance(self) -> bool:
        """Whether every decode may compute one token, as a member of the cohort."""
        cohort, limit = self._cohort, self._policy.limits.max_num_batched_tokens
        return (
            0 < len(cohort.members) == self.running.num_decodes
            and (limit is None or len(cohort.members) <= limit)
            and cohort.growth <= self.kv.free
        )

    def _chunks(self, plan: Plan) -> Listed | None:
        """Return the chunks in running order, or None where the plain stepper has to look."""
        chunks: Listed = []
        total = need = 0
        if plan.decodes:
            if plan.decodes is not ALL_RUNNING or not self._gather():
                return None
            total, need = len(self._cohort.members), self._cohort.growth
        for rid, tokens in plan.chunks:
            request = self.running.partial(rid)
            if request is None or not 1 <= tokens <= request.known - request.computed:
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
        if self.kv.caching and chunks and plan.decodes and not self._last_come(chunks[0][0]):
            return None
        return chunks

    def _last_come(self, request: Request) -> bool:
        """Whether no decode stands behind the request."""
        return self.running.decodes_before(request) == self.running.num_decodes

    def _gather(self) -> bool:
        """Make every running decode a member; False if one cannot be."""
        if len(self._cohort.members) == self.running.num_decodes:
            return True
        members = self._cohort.members
        return all(r.id in members or self._join(r) for r in self.running if r.is_decode)

    def _join(self, request: Request) -> bool:
        """Let a decode join the cohort; False if it cannot."""
        assert isinstance(request, CohortRequest)
        return self._cohort.join(request, self._output_tokens[request.id])

    def _decode_growth(self) -> int:
        cohort = self._cohort
        if len(cohort.members) == self.running.num_decodes:
            return cohort.growth
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
        if plan.steady and not self._copied_blocks:
            limit = self._env.peek()
            if decision.wake_at is not None and decision.wake_at < limit:
                limit = decision.wake_at
            if len(listed) == 1 and plan.shape is None:
                return self._skip_chunks(listed, plan, start, limit)
            end = None if listed or self._cohort.late else self._skip(plan, start, limit)
            if end is not None:
                return end
        if not self._stands:
            self._cohort.begin_step()
        work = self._work(listed)
        charged, end = self._charge(work, plan, start)
        for request, _ in listed:
            if request.first_scheduled is None:
                request.first_scheduled = start
        self._tell_step(work, charged, start, end)
        return end

    def _skip(self, plan: Plan, start: float, limit: float) -> float | None:
        """Do the steps that end before `limit` and in which nothing happens; start the next one.

        Return when that one ends; None, having done nothing, where the next step is the last of
        somebody, or the one after it may not find its blocks.
        """
        cohort = self._cohort
        charged = padded(self._work([]), plan.shape)
        run = eventless_steps(cohort, charged, self._run_cost, self._duration, start, limit)
        if run is None:
            return None
        last = run.next_duration
        steps, size, context = len(run.ends) + 1, len(cohort), cohort.context_tokens
        num_waiting, num_running = len(self.waiting), len(self.running)
        if run.ends and plan.release is Release.PER_REQUEST:
            assert cohort.last_token is not None, "a decode has delivered a token"
            gaps = [run.ends[0] - cohort.last_token, *run.durations[1:]]
            cohort.last_token = run.now
            for on_gap_run in self._on_gap_run:
                on_gap_run(run.ends, gaps, size)
        cohort.begin_last_of(steps)
        used, end = self.kv.used, run.now + last
        record = StepRecord(
            start,
            end,
            steps,
            run.durations[0] if run.durations else last,
            last,
            size,
            0,
            0,
            0.0,
            0,
            context * steps + size * (steps * (steps - 1) // 2),
            charged.num_decodes * steps,
            used,
            run.kv_block_ticks + used * int(last * TICKS_PER_SECOND),
            num_waiting,
            num_running,
        )
        for on_step in self._on_step:
            on_step(record)
        return end

    def _skip_chunks(self, listed: Listed, plan: Plan, start: float, limit: float) -> float:
        """Do the steps that end before `limit` and leave the plan as it is; start the next one.

        Return when that one ends.
        """
        request, tokens = listed[0]
        if request.first_scheduled is None:
            request.first_scheduled = start
        while True:
            work = self._work(listed)
            end = start + self._duration(work)
            self._tell_step(work, work, start, end)
            if end >= limit or not self._repeats(request, tokens):
                return end
            gaps = self._advance(end, plan)
            if gaps:
                self._tell_gaps(end, gaps)
            request.compute(tokens)
            if not self._stands:
                self._cohort.begin_step()
            self.kv.hold(request.id, request.computed + tokens)
            start = end

    def _repeats(self, request: Request, tokens: int) -> bool:
        """Whether the step after this one does the same: a piece that is not a prompt's last."""
        need, cohort = self.kv.need(request, 2 * tokens), self._cohort
        if request.remaining <= 2 * tokens:
            return False
        if self._stands:
            return need <= self.kv.free
        last = cohort.next_end
        if last is not None and last - cohort.clock < 2:
            return False
        return need + cohort.due[(cohort.clock + 1) % len(cohort.due)] <= self.kv.free

    def _work(self, listed: Listed) -> StepWork:
        """Return what the step computes: the cohort's tokens, unless it stands, and the chunks."""
        size = context = rows = 0
        if not self._stands:
            cohort = self._cohort
            size, context, rows = len(cohort.members), cohort.context_tokens, cohort.num_rows
        if not listed:
            return StepWork(size, context, (), size, rows)
        sampled, chunks = size, []
        for request, tokens in listed:
            computed = request.computed
            chunks.append((tokens, computed))
            sampled += computed + tokens == request.known
            rows += request.size
        return StepWork(size, context, tuple(chunks), sampled, rows)

    def _advance(self, now: float, plan: Plan) -> dict[float, int]:
        """End a step of the cohort; return the gaps before the tokens it delivers."""
        if self._stands:
            return {}
        return self._cohort.end_step(now if plan.release is Release.PER_REQUEST else None)

    def _end(self, listed: Listed, plan: Plan) -> None:
        """Apply a finished step to the cohort as a whole and to the chunks one by one."""
        if not self._together:
            super()._end(listed, plan)
            return
        now, cohort = self._env.now, self._cohort
        gaps = self._advance(now, plan)
        sampled: list[Request] = []
        if listed:
            sampled = self._compute(listed)
            if plan.release is Release.PER_REQUEST:
                self._deliver(sampled, gaps)
        elif gaps:
            self._tell_gaps(now, gaps)
        complete: list[Request] = []
        for member in cohort.ended():
            cohort.leave(member)
            complete.append(member)
        for request in sampled:
            if self._is_complete(request):
                complete.append(request)
            else:
                self._join(request)
        if len(complete) > 1:
            complete.sort(key=lambda request: request.order)
        if complete:
            self._retire(complete, plan)
