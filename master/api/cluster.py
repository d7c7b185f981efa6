"""Clusters: the nodes of an inventory, and the runs on them."""

from __future__ import annotations

import hashlib
import json
import queue
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from pktswarm.master import shipped
from pktswarm.master.api.benchmarks import Y1564, Calibration, Health, Rfc2544, Search, Sessions, Table
from pktswarm.master.api.orders import ClusterUp, Command, Done, EnterLab, RateOrder, RunScenario, SetRate, Switch
from pktswarm.master.api.process import Process
from pktswarm.master.api.result import Result
from pktswarm.master.api.scenario import Scenario
from pktswarm.master.live.document import LiveDocument
from pktswarm.traffic.errors import PktswarmError

Given = str | Path | Scenario
"""The path of a scenario file, or a scenario made in Python."""
JOIN_S = 0.1


class Live:
    """A run that goes on. At the end of a `with` block the run is waited for; an exception in the block stops it."""

    def __init__(self, cluster: Cluster, order: RunScenario) -> None:
        self._cluster = cluster
        self._samples: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._newest: LiveDocument | None = None
        self._run: Result | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, args=(cluster, order), name="pktswarm run", daemon=True)
        self._thread.start()

    def _work(self, cluster: Cluster, order: RunScenario) -> None:
        try:
            done = cluster._worker().call(order, self._samples.put, cluster._waits)
            self._run = Result.load(done.output)
            cluster.made.append(self._run.folder)
        except BaseException as error:
            self._error = error
        finally:
            self._samples.put(None)

    def samples(self) -> Iterator[LiveDocument]:
        """Yields the live document of the run (docs/live.md) each time it changes, several times a second, until the
        run has ended. One that comes while the caller works on the one before is left out."""
        while (text := self._samples.get()) is not None:
            while not self._samples.empty():  # the newest
                following = self._samples.get()
                if following is None:
                    self._samples.put(None)
                    break
                text = following
            self._newest = cast(LiveDocument, json.loads(text))
            yield self._newest
        self._samples.put(None)

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def set_rate(self, stream: str, pps: float) -> None:
        """Sets the rate of a stream that is being sent, packets/s of all its nodes, and returns when they have set it.

        The frame that is due next keeps its time, and the intended packets are not known any more. Raises BadInput for
        a stream whose rate cannot be changed, or a rate out of range, and Error where nothing is sent.
        """
        self._cluster._change(SetRate(stream, float(pps)))

    def stop_stream(self, stream: str) -> None:
        """Stops a stream, and returns when its nodes have: no more of its frames are sent until start_stream().

        It still ends with its duration, counted from the start of the run. The intended packets are not known any more.
        Raises BadInput for a stream that cannot be stopped, and Error where nothing is sent.
        """
        self._cluster._change(Switch(stream, sends=False))

    def start_stream(self, stream: str) -> None:
        """Starts a stream that was stopped, or that is `held` by its scenario, at the rate that it had. Its next frame
        is due within 10 ms. Raises as stop_stream() does."""
        self._cluster._change(Switch(stream, sends=True))

    def stop(self) -> None:
        """Stops the run in order, as Ctrl-C does: the counts are gathered, and wait() returns them."""
        self._cluster._stop()

    def wait(self) -> Result:
        """Waits for the end of the run. Raises what prevented it; KeyboardInterrupt stops it in order first."""
        try:
            while self._thread.is_alive():
                self._thread.join(JOIN_S)
        except KeyboardInterrupt:
            self.stop()
            self._thread.join()
            raise
        if self._error is not None:
            raise self._error
        assert self._run is not None
        return self._run

    def __enter__(self) -> Live:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.wait()
            return
        self.stop()
        self._thread.join()


class Cluster:
    """The nodes of an inventory. In a `with` block their processes stay up between runs (docs/cluster.md).

    `inventory`: the path of an inventory file, such as `lab.inventory`. `results`: the folder of the results.
    `patience` multiplies every deadline. `wait`: for other users of the nodes' cluster, and for calls of other threads;
    else Busy is raised. Methods can be called from several threads; one run goes on at a time.
    """

    def __init__(
        self,
        inventory: str | Path,
        results: str | Path = "results",
        *,
        patience: float = 1.0,
        wait: bool = False,
        any_address: bool = False,
        control_interface: bool = False,
    ) -> None:
        self.inventory, self.results = Path(inventory).absolute(), Path(results).absolute()
        self._patience, self._waits = patience, wait
        self._any_address, self._control_interface = any_address, control_interface
        self._process: Process | None = None
        self._opening = threading.Lock()
        self.made: list[Path] = []
        """The folders of the runs that this object made."""
        self._files: tempfile.TemporaryDirectory[str] | None = None
        """Files of scenarios that were made in Python."""

    # --- life ---------------------------------------------------------------------------------------------------

    def __enter__(self) -> Cluster:
        try:
            self.up()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def up(self) -> None:
        """Starts the processes on all nodes, unless a cluster is up. Runs do without it, and start slower."""
        self._worker().call(ClusterUp(str(self.inventory), self._patience), waits=self._waits)

    def close(self) -> None:
        """Stops a run that goes on, and ends what this object started."""
        process, self._process = self._process, None
        if process is not None:
            process.stop()
            process.close()
        if self._files is not None:
            self._files.cleanup()
            self._files = None

    def _worker(self) -> Process:
        with self._opening:
            if self._process is None:
                self._process = Process()
                self._process.call(EnterLab(str(self.inventory)))
            return self._process

    def _command(self, *words: str) -> Done:
        return self._worker().call(Command([*words], str(Path.cwd())), waits=self._waits)

    def _hosts(self) -> tuple[str, str]:
        return "--hosts", str(self.inventory)

    def _change(self, order: RateOrder) -> None:
        self._worker().change(order)

    def _stop(self) -> None:
        if self._process is not None:
            self._process.stop()

    # --- runs ---------------------------------------------------------------------------------------------------

    def run(self, scenario: Given, *, labels: Mapping[str, str] | None = None, report: bool = False) -> Result:
        """Makes a run and waits for its end.

        `labels`: of the device under test. `report`: writes report.html at once; else Result.report does. The run need
        not be as expected or complete: see Result.check(). Raises BadInput, Busy, or Error where nothing could be sent.
        """
        return self._live(scenario, labels, report, shows=False).wait()

    def start(self, scenario: Given, *, labels: Mapping[str, str] | None = None, report: bool = False) -> Live:
        """Begins a run, and does not wait for its end."""
        return self._live(scenario, labels, report, shows=True)

    def _live(self, scenario: Given, labels: Mapping[str, str] | None, report: bool, shows: bool) -> Live:
        order = RunScenario(
            str(self._path(scenario)),
            str(self.inventory),
            str(self.results),
            str(Path.cwd()),
            shows,
            report,
            self._patience,
            self._waits,
            _labels(labels),
            self._any_address,
            self._control_interface,
        )
        return Live(self, order)

    def _path(self, scenario: Given) -> Path:
        if not isinstance(scenario, Scenario):
            return shipped.scenario(Path(scenario)).absolute()
        text = scenario.text()
        with self._opening:
            if self._files is None:
                self._files = tempfile.TemporaryDirectory(prefix="pktswarm-")
            # By its content: another thread's run may still read a file of the same name.
            folder = Path(self._files.name) / hashlib.sha256(text.encode()).hexdigest()
            path = folder / f"{scenario.name}.yaml"
            if not folder.exists():
                folder.mkdir()
                path.write_text(text)
        return path

    # --- benchmarks ---------------------------------------------------------------------------------------------

    def search(
        self,
        scenario: Given,
        *,
        streams: Sequence[str] = (),
        loss: Sequence[str | float] = (0,),
        expect: Sequence[str] = (),
        lowest: str | float | None = None,
        highest: str | float | None = None,
        precision: str = "0.5%",
        duration: str | float = 1.0,
        trials: int = 3,
        confirm: str | float | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Search:
        """Searches for the highest rate at which no more than a share is lost; the options are those of
        `pktswarm search`: `loss` 0 or "2 %", rates in packets/s or "10kpps", times in s or "500ms"."""
        options = {"stream": streams, "loss": loss, "expect": expect, "min": lowest, "max": highest}
        options |= {"precision": precision, "duration": duration, "trials": trials, "confirm": confirm}
        return Search(*self._benchmark("search", scenario, options, labels))

    def rfc2544(
        self,
        scenario: Given,
        *,
        sizes: str | None = None,
        tests: str | None = None,
        highest: str | None = None,
        full: bool = False,
        precision: str | None = None,
        confirm: str | float | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Rfc2544:
        """Measures throughput, latency, frame loss rate and back-to-back frames (RFC 2544); the options are those of
        `pktswarm rfc2544`."""
        options = {"sizes": sizes, "tests": tests, "max": highest, "precision": precision, "confirm": confirm}
        return Rfc2544(*self._benchmark("rfc2544", scenario, {**options, "full": full}, labels))

    def y1564(
        self,
        services: str | Path,
        *,
        tests: str | None = None,
        step: str | float | None = None,
        performance: str | float | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Y1564:
        """Tests services at steps of their committed rates, then all at once (ITU-T Y.1564); the options are those of
        `pktswarm y1564`."""
        options = {"tests": tests, "step": step, "performance": performance}
        return Y1564(*self._benchmark("y1564", services, options, labels))

    def calibrate(
        self,
        *,
        sizes: str | None = None,
        engines: str | None = None,
        nodes: Sequence[str] = (),
        quick: bool = False,
        full: bool = False,
        duration: str | float | None = None,
        again: bool = False,
        capture: bool = False,
        labels: Mapping[str, str] | None = None,
    ) -> Calibration:
        """Measures what each node can send, and receive without loss, with no device under test between them; the
        options are those of `pktswarm calibrate`. Runs with this inventory are planned by the figures from then on."""
        own = {"sizes": sizes, "engines": engines, "node": nodes, "quick": quick, "full": full}
        options = {**own, "seconds": duration, "again": again, "capture": capture, **self._patiently()}
        return Calibration(*self._kept("calibrate", [], options, labels))

    def table(
        self,
        what: str | Path,
        *,
        duration: str | float | None = None,
        full: bool = False,
        background: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Table:
        """Measures a table or figure of a reference again; the options are those of `pktswarm table`. The folder is
        NAME below that of the results, and the points that it holds are reused."""
        out = self.results / Path(what).stem
        options = {"seconds": duration, "full": full, "background": background, "out": out}
        return Table(out, self._document("table", [str(what)], {**options, **self._sending()}, labels))

    def sessions(
        self, config: str | Path, *, hold: str | float = 0, labels: Mapping[str, str] | None = None
    ) -> Sessions:
        """Establishes the sessions of a UPF over N4, holds them for `hold` and deletes them, without user traffic; as
        `pktswarm sessions`."""
        return Sessions(*self._kept("sessions", [str(self._path(config))], {"hold": hold}, labels))

    def doctor(self, *, mend: bool = False) -> Health:
        """Checks every host of the inventory: reachability, versions, engines, and remains of earlier runs. `mend`:
        first restores settings that runs left changed because their guard was killed."""
        return Health(self._document("doctor", [], {"mend": mend, "patience": self._patience}, None))

    def _patiently(self) -> dict[str, Any]:
        return {"patience": self._patience, "wait": self._waits}

    def _sending(self) -> dict[str, Any]:
        allowed = {"allow-any-address": self._any_address, "allow-control-interface": self._control_interface}
        return self._patiently() | allowed

    def _benchmark(
        self, command: str, file: Given, options: Mapping[str, Any], labels: Mapping[str, str] | None
    ) -> tuple[Path, Any]:
        return self._kept(command, [str(self._path(file))], {**options, **self._sending()}, labels)

    def _kept(
        self, command: str, words: Sequence[str], options: Mapping[str, Any], labels: Mapping[str, str] | None
    ) -> tuple[Path, Any]:
        """The folder that the command made below that of the results, and the rest of the document."""
        document = self._document(command, words, {**options, "results": self.results}, labels)
        return Path(document.pop("results")), document

    def _document(
        self, command: str, words: Sequence[str], options: Mapping[str, Any], labels: Mapping[str, str] | None
    ) -> Any:
        """What the command printed as JSON."""
        words = [command, *words, *self._hosts(), "--json", *_options({**options, "label": _labels(labels)})]
        done = self._command(*words)
        if not done.output:
            raise PktswarmError(f"{command}: no result")
        return json.loads(done.output)


def _labels(labels: Mapping[str, str] | None) -> list[str]:
    return [f"{key}={value}" for key, value in (labels or {}).items()]


def _options(options: Mapping[str, Any]) -> Iterator[str]:
    """The words of options; one that is None is left to the command."""
    for name, value in options.items():
        if value is True:
            yield f"--{name}"
        elif value is not None and value is not False:
            for each in value if isinstance(value, (list, tuple)) else [value]:
                yield from (f"--{name}", str(each))
