from workloads import PresetWorkload, Streams, Trace, TraceSource


def test_open_source_hands_out_everything_at_the_start():
    trace = Trace([0.0, 1.0], [10, 20], [1, 2])
    source = TraceSource(trace)
    assert source.start() == list(trace.requests())
    assert source.on_finish(1, 3.0) == []


def test_workload_makes_its_source():
    workload = PresetWorkload(name="demo-chat", num_requests=5)
    requests = workload.source(Streams(1)).start()
    assert requests == list(workload.build(Streams(1)).requests())
