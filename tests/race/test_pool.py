"""Jobs in processes: all come back, and none is left behind."""

import builtins
import math
import multiprocessing
import operator
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from normula.race import Job, cores, run_all
from normula.race.pool import THREAD_VARIABLES, Died, Done, Pool, Said, Say
from tests.processes import session, wait_until

LONG = Job(time.sleep, (300,))


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    """Fails a test that leaves a process, or takes as long as the longest job."""
    others, start = set(multiprocessing.active_children()), time.monotonic()
    yield
    assert set(multiprocessing.active_children()) <= others
    assert time.monotonic() - start < 120


def test_every_result_comes_back_with_its_place() -> None:
    jobs = [Job(math.sqrt, (float(n**2),)) for n in range(20)]
    assert sorted(run_all(jobs, workers=2)) == [(n, float(n)) for n in range(20)]


def test_no_jobs_give_no_results() -> None:
    assert list(run_all([], workers=2)) == []


def test_a_result_comes_as_soon_as_it_is_there() -> None:
    with closing(run_all([LONG, Job(os.getpid, ())], workers=2)) as results:
        place, pid = next(results)
    assert place == 1
    assert pid != os.getpid()


def test_jobs_run_in_the_order_given() -> None:
    results = list(run_all([Job(time.monotonic, ()) for _ in range(6)], workers=1))
    assert [place for place, _ in results] == [0, 1, 2, 3, 4, 5]
    assert [at for _, at in results] == sorted(at for _, at in results)


@pytest.mark.negative
def test_what_a_job_raises_is_raised_here_and_ends_the_others() -> None:
    with pytest.raises(ValueError, match="math domain error"):
        list(run_all([LONG, Job(math.sqrt, (-1.0,)), LONG, LONG], workers=2))


@pytest.mark.negative
def test_it_says_where_a_job_raised() -> None:
    with pytest.raises(ValueError, match="math domain error") as error:
        list(run_all([Job(math.sqrt, (-1.0,))], workers=1))
    assert "in a process of its own" in error.value.__notes__[0]
    assert "Traceback" in error.value.__notes__[0]


@pytest.mark.negative
def test_a_process_that_dies_is_said_and_ends_the_others() -> None:
    with pytest.raises(ChildProcessError, match=r"a process ended while it worked, with code 7.*try fewer workers"):
        list(run_all([LONG, Job(os._exit, (7,)), LONG], workers=2))


@pytest.mark.negative
@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, GeneratorExit, RuntimeError])
def test_an_interrupt_where_the_results_are_taken_ends_the_processes(interrupt: type[BaseException]) -> None:
    results = run_all([Job(math.sqrt, (4.0,)), LONG, LONG], workers=2)
    assert next(results) == (0, 2.0)
    with pytest.raises(interrupt):
        results.throw(interrupt)


def test_closing_early_ends_the_processes() -> None:
    results = run_all([Job(math.sqrt, (4.0,)), LONG, LONG], workers=2)
    next(results)
    results.close()
    assert list(results) == []


def test_large_results_on_their_way_do_not_hold_up_the_end() -> None:
    for taken in (1, 2, 5):
        with closing(run_all([Job(bytes, (3_000_000,))] * 40, workers=2)) as results:
            sizes = [len(next(results)[1]) for _ in range(taken)]
            start = time.monotonic()
        assert sizes == [3_000_000] * taken
        assert time.monotonic() - start < 10


def test_no_more_processes_than_jobs_are_started() -> None:
    with closing(run_all([LONG, Job(math.sqrt, (4.0,))], workers=50)) as results:
        assert next(results) == (1, 2.0)
        assert len(multiprocessing.active_children()) <= 2


@pytest.mark.negative
def test_processes_that_are_not_its_own_are_left_alone() -> None:
    other = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(300,))
    other.start()
    try:
        with closing(run_all([Job(math.sqrt, (4.0,)), LONG], workers=2)) as results:
            next(results)
        assert other.is_alive()
    finally:
        other.terminate()
        other.join()


def test_a_process_has_one_thread_and_the_environment_here_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    before = dict(os.environ)
    found = list(run_all([Job(os.getenv, (name,)) for name in THREAD_VARIABLES], workers=1))
    assert [value for _, value in found] == ["1", "1", "1"]
    assert dict(os.environ) == before


def test_a_process_does_not_answer_an_interrupt_from_the_keyboard() -> None:
    [(_, handler)] = run_all([Job(signal.getsignal, (signal.SIGINT,))], workers=1)
    assert handler == signal.SIG_IGN
    [(_, blocked)] = run_all([Job(signal.pthread_sigmask, (signal.SIG_BLOCK, ()))], workers=1)
    assert signal.SIGINT in blocked
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_the_cores_are_those_that_this_process_may_use() -> None:
    assert cores() == len(os.sched_getaffinity(0))
    [(_, allowed)] = run_all([Job(operator.call, (cores,))], workers=1)
    assert allowed == cores()


@pytest.mark.negative
def test_a_job_that_raises_what_a_broken_connection_does_is_told_from_it() -> None:
    for name in ("EOFError", "BrokenPipeError", "MemoryError"):
        with pytest.raises(getattr(builtins, name), match="it was the job"):
            list(run_all([Job(fails, (name,))], workers=1))


@pytest.mark.negative
def test_what_cannot_be_sent_back_is_an_error_of_the_job() -> None:
    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
        list(run_all([Job(eval, ("lambda: 0",))], workers=1))
    with pytest.raises(RuntimeError, match="OddError: 1 and 2"):
        list(run_all([Job(fails_oddly)], workers=1))


def test_a_job_can_speak_while_it_works_and_its_process_works_on() -> None:
    with Pool(1) as pool:
        for key in ("first", "second"):
            pool.give(key, Job(counts, (3,), talks=True))
            heard = []
            while not heard or not isinstance(heard[-1], Done):
                heard += [event for _, event in pool.wait()]
            assert heard[:-1] == [Said(0), Said(1), Said(2)]
            if key == "first":
                worker = heard[-1].result
            assert heard[-1] == Done(worker)


def test_waiting_for_a_time_brings_nothing_where_nothing_happens() -> None:
    with Pool(1) as pool:
        pool.give("long", LONG)
        assert pool.wait(0.01) == []
        assert pool.is_full


@pytest.mark.negative
def test_a_process_that_is_killed_is_one_event_and_a_new_one_takes_its_place() -> None:
    with Pool(2) as pool:
        pool.give("victim", Job(counts_and_waits, talks=True))
        pool.give("other", Job(counts_and_waits, talks=True))
        pids: dict[str, int] = {}
        while len(pids) < 2:
            pids |= {key: event.message for key, event in pool.wait() if isinstance(event, Said)}
        os.kill(pids["victim"], signal.SIGKILL)
        [(key, event)] = pool.wait()
        assert key == "victim"
        assert event == Died("a process ended while it worked, by the signal SIGKILL")
        pool.give("victim", Job(os.getpid))
        [(key, event)] = pool.wait()
        assert key == "victim"
        assert isinstance(event, Done)
        assert event.result not in pids.values()


@pytest.mark.negative
def test_an_idle_process_that_is_killed_is_replaced() -> None:
    with Pool(1) as pool:
        pool.give("one", Job(os.getpid))
        [(_, first)] = pool.wait()
        assert isinstance(first, Done)
        os.kill(first.result, signal.SIGKILL)
        pool.idle[0].process.join()
        pool.give("two", Job(os.getpid))
        events = pool.wait()
        assert [key for key, _ in events] == ["two"]
        assert isinstance(events[0][1], Done | Died)


@pytest.mark.negative
def test_a_script_without_its_guard_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import math\nfrom normula.race import *\nprint(list(run_all([Job(math.sqrt, (4.0,))], 1)))\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert 'must stand under `if __name__ == "__main__":`' in done.stderr.splitlines()[-1]


def test_what_a_job_prints_is_kept_from_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    list(run_all([Job(print, ("noise",))], workers=1))
    assert capfd.readouterr() == ("", "noise\n")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_processes_end_when_the_one_that_started_them_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import time\nfrom normula.race import *\n"
        'if __name__ == "__main__":\n    list(run_all([Job(time.sleep, (300,))] * 2, 2))\n'
    )
    parent = subprocess.Popen([sys.executable, script], start_new_session=True)
    wait_until(lambda: len(session(parent.pid)) >= 4)  # with the resource tracker
    time.sleep(0.5)
    parent.kill()
    parent.wait()
    wait_until(lambda: not session(parent.pid))


def fails(name: str) -> None:
    raise getattr(builtins, name)("it was the job")


class OddError(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def fails_oddly() -> None:
    raise OddError(1, 2)


def counts(upto: int, *, say: Say) -> int:
    for number in range(upto):
        say(number)
    return os.getpid()


def counts_and_waits(*, say: Say) -> None:
    say(os.getpid())
    time.sleep(300)
