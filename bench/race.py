"""Two programs in one process that take turns."""

import time

TURN = 0.4  # seconds: onnxruntime's threads spin for some 0.1 s after a run, in which another's have one processor less


def race(contestants, seconds, turn=TURN):
    """The least time of each, in ms."""
    best = [float("inf")] * len(contestants)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for i, run in enumerate(contestants):
            of_turn = time.perf_counter() + turn
            while (begin := time.perf_counter()) < of_turn:
                run()
                best[i] = min(best[i], time.perf_counter() - begin)
    return [1e3 * t for t in best]
