"""One run from the command line's side: check, plan, launch, hand out the tasks, keep what comes, judge."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pktswarm.master.cluster import dut
from pktswarm.master.cluster import inventory as inventories
from pktswarm.master.cluster.node import refuse_held, reports_by_host
from pktswarm.master.cluster.ranks import Rank, ranks
from pktswarm.master.dut_host.reading import SSH_LIMIT_S, source_of
from pktswarm.master.dut_host.watch import DutHost
from pktswarm.master.plan import allowlist, capacity, shared_wires
from pktswarm.master.plan import plan as plans
from pktswarm.master.plan.resolve import resolve
from pktswarm.master.plan.resolved import Resolved
from pktswarm.master.results.document import RunInputs
from pktswarm.master.results.folder import Folder, Outcome
from pktswarm.master.results.ledger import Ledger, Sessions, Shown, Tick
from pktswarm.master.results.read_document import host_entry, leg_entry
from pktswarm.master.results.trace_verify import Compared, compare
from pktswarm.master.results.used_capacity import used_capacity
from pktswarm.master.run import aftermath, rate_changes, signals
from pktswarm.master.run.gateways import Gateways, hosts_of
from pktswarm.master.run.kept_ranks import Control, KeptRanks, Launched, Ranks, send_order
from pktswarm.master.run.launch import LAUNCH_TIMEOUT_S, LEAVE_TIMEOUT_S
from pktswarm.master.run.record import Record
from pktswarm.master.run.silence import SilenceTimer
from pktswarm.master.scenario import scenario as scenarios
from pktswarm.master.scenario.scenario import Scenario
from pktswarm.master.scenario.upf import Upf
from pktswarm.master.upf.session_results import write_users
from pktswarm.traffic.errors import BadInput, PktswarmError
from pktswarm.traffic.protocol import rank0_orders, rank_events
from pktswarm.traffic.protocol.rank0_events import Phase, Piece, Rank0Event, Start, Stopped
from pktswarm.traffic.protocol.rank_orders import File
from pktswarm.traffic.protocol.task import to_json

if TYPE_CHECKING:
    from pktswarm.master.upf.control_plane import ControlPlane

STOP_TIMEOUT_S = 30.0
BEFORE_WORDS = ("launch", "hello")
"""Until all nodes are there rank 0 may be busy with MPI's own start, which has a deadline of its own."""
AFTER_SENDING = ("drain", "gather", "restore", "over")
NOTHING = allowlist.Allow()
Watcher = Callable[[Ledger, Shown], None]


@dataclass
class Finished:
    folder: Path
    outcome: Outcome
    written: bool = True
    """False: the folder could not be written any more, and the outcome says why."""


class Run:
    """Checked and planned when it is made; `execute` touches the hosts."""

    def __init__(
        self,
        scenario_path: Path,
        inventory_path: Path,
        results: Path,
        patience: float = 1.0,
        keep_sent: bool = True,
        scenario: Scenario | None = None,
        by_capacity: bool = True,
        allow: allowlist.Allow = NOTHING,
        kept: KeptRanks | None = None,
        labels: Mapping[str, str] = dut.NO_LABELS,
        steered: bool = False,
    ) -> None:
        """`keep_sent`: the sent frames of traces are kept in the results; with captures they always are, because the
        captures are compared with them. `scenario`: replaces that of the file. `by_capacity`: loads are planned by the
        measured capacity of the nodes, where it is known. `allow`: see master.plan.allowlist. `kept`: where the ranks
        come from, and go to; if left out, those of a cluster that is up, else of a launch for this run. `labels`: of
        the device under test. `steered`: the caller can change streams while they are sent (set_rates)."""
        self.scenario_path, self.inventory_path = scenario_path, inventory_path
        self.results, self.patience = results, patience
        self.watch: Watcher = lambda ledger, event: None
        self.tick_s = 0.1
        """Longest interval between two calls of the watcher."""
        self.inventory, self.allow = allow.inventory(inventories.load(inventory_path)), allow
        self.scenario = scenarios.load(scenario_path) if scenario is None else scenario
        self._steered = steered
        self.dut = dut.entry(self.inventory.dut, labels)
        self.keep_sent = keep_sent or self.scenario.receive.mode == "capture"
        self.capacity = capacity.beside(inventory_path) if by_capacity else None
        self._not_used: list[str] = []
        self.plan = self._planned()
        allowlist.check_plan(self.inventory, self.plan)
        self._wanted = ranks(self.inventory, self.plan.legs)
        self.ranks: list[Rank] = self._wanted
        """With the numbers that they have in their launch."""
        self.ledger = Ledger(self.ranks)
        is_upf = self.plan.upf is not None or "pktswarm_upf" in self.inventory.variables
        self.dut_host = DutHost(source_of(self.inventory), "UPF" if is_upf else "device")
        self.record, self.gateways = Record(results), Gateways()
        self._interrupts = self._told_to_stop = 0
        self._began = self._interrupted_at = self._last_event_s = 0.0
        self._refusal: PktswarmError | None = None
        self.control_plane: ControlPlane | None = None
        self._kept, self._lets_go = kept or KeptRanks(several=False), kept is None
        self._without_upf = self._without_mpiexec = ""
        self._has_met_all = False  # of the ranks: one that is lost before that was gone before the run
        self._frozen = False
        """Rank 0 does not respond, and is not waited for."""

    @property
    def folder(self) -> Folder | None:
        return self.record.folder

    def _planned(self) -> plans.Plan:
        plan = plans.plan(self.scenario, self.scenario_path, self.inventory, self.capacity)
        legs = rate_changes.steered(self.scenario_path, plan.legs, self._steered)
        return replace(plan, legs=legs, patience=self.patience)

    def execute(self, watch: Watcher) -> Finished:
        """Makes the run. `watch`: called with every event, for the terminal. Raises BadInput if it prevents sending."""
        self.watch = watch
        signals.adopt_orphans()
        try:
            with self._interruptible():
                ranks = self._kept.take(self.inventory, self._wanted, self.patience)
                if not self._attempt(ranks) and not ranks.fresh:
                    self.record = Record(self.results)  # without reports of the ranks that are gone
                    ranks = self._kept.take_others(ranks, self.inventory, self._wanted, self.patience)
                    self._attempt(ranks)
        finally:
            if self._lets_go:
                self._kept.let_go()
        return self._result(ranks.launch)

    def _attempt(self, ranks: Ranks) -> bool:
        """Makes the run with these ranks. Returns False where it needs other ones: they were gone before it began."""
        self._began = time.monotonic()
        self.ranks, self.ledger = ranks.ranks, Ledger(ranks.ranks)
        self.ledger.notes += ranks.notes
        given_back = False
        try:
            self._follow(ranks.control, ranks.launch)
            at_once = self._interrupts > 1 or self._frozen
            if self.folder is not None:
                # Before the launch is stopped, which ends every child of this process.
                self.ledger.dut_host = self.dut_host.finish(0.0 if at_once else SSH_LIMIT_S)
            whole = self.ledger.over and not self.ledger.stopped
            self._kept.give_back(ranks, whole, 0.0 if at_once else LEAVE_TIMEOUT_S * self.patience)
            given_back = True
        finally:
            if not given_back:
                self._kept.drop(ranks)
            self._end_sessions()
        return bool(self._interrupts or self._refusal) or self._has_met_all

    # --- sessions -----------------------------------------------------------------------------------------------

    def _set_up(self, upf: Upf) -> None:
        """Sets up sessions once the nodes are locked, before they receive tasks: frames hold what the UPF chooses."""
        from pktswarm.master.upf.control_plane import ControlPlane  # PFCP's encoder takes a third of a second to load

        self._report_phase("sessions")
        plane = ControlPlane(self.scenario_path, upf)
        plane.smf.progress = self._report_sessions
        try:
            with signals.interrupting():
                plane.begin()
        except BaseException:
            # Signals only count again: another one does not leave sessions behind.
            plane.take_down()
            raise
        self.control_plane = plane

    def _report_phase(self, name: str) -> None:
        """Records a phase of this process, which rank 0 does not report."""
        event = Phase(name, time.monotonic_ns())
        self.record.keep(event, b"", self.ledger)
        self._show(event)

    def _report_sessions(self, done: int, asked: int) -> None:
        """Passes progress to the watcher only; the run's log leaves it out."""
        self._show(Sessions(done, asked))

    def _pace_loads(self, event: Rank0Event) -> None:
        if self.control_plane is None:
            return
        if isinstance(event, Start):
            self.control_plane.start_loads(event.at_ns)
        elif self.ledger.phase in AFTER_SENDING or isinstance(event, Stopped):
            self.control_plane.stop_loads()

    def _end_without_upf(self, control: Control) -> None:
        """Nothing that is sent arrives any more."""
        if self.control_plane is None or self._without_upf or not (words := self.control_plane.trouble):
            return
        self._without_upf = words
        self._stop(control, words)

    def _end_sessions(self) -> None:
        if self.control_plane is not None:
            self._report_phase("sessions' end")
            self.control_plane.end()
            self.ledger.more_doubts += self.control_plane.doubts()
            self.ledger.notes += self.control_plane.notes()
            self.ledger.moves = self.control_plane.moves

    # --- following the run --------------------------------------------------------------------------------------

    def _follow(self, control: Control, launch: Launched) -> None:
        """Processes events until rank 0 has ended, is gone, or exceeds the time limit after a stop order."""
        silence, self._control = SilenceTimer(), control
        while not control.closed and not self.ledger.over and not self._overdue():
            self._pass_on_interrupts(control)
            self._end_without_upf(control)
            self._end_without_disk(control)
            if self._interrupts > 1:
                return
            self._look_at_mpiexec(launch)
            silence.look(control.receive(self.tick_s))
            for event, raw in control.messages():
                self._last_event_s = time.monotonic()
                if not isinstance(event, rank_events.Alive):
                    self._take(event, raw, control)
            self._show(Tick())
            if self.ledger.phase not in BEFORE_WORDS and silence.is_over(self.patience):
                self.ledger.stopped = (
                    f"rank 0 is frozen in phase {self.ledger.phase!r}: no report for {silence.silent_s:.1f} s"
                )
                self._frozen = True
                return

    def set_rates(self, orders: Iterable[rank0_orders.SetRate]) -> set[int]:
        """Changes streams that are being sent (master.run.rate_changes). Returns the legs for which RateSet follows,
        unless their sending has ended."""
        given = [*orders]  # all are checked before the first is sent
        for order in given:
            send_order(self._control, order)
        return {order.leg for order in given}

    def _look_at_mpiexec(self, launch: Launched) -> None:
        """Ranks that have found each other do without it. It goes with any of its proxies: with a node, or a link."""
        if not self._without_mpiexec and not launch.running():
            self._without_mpiexec = f"mpiexec ended in phase {self.ledger.phase!r}; the ranks went on without it"

    def _overdue(self) -> bool:
        """Rank 0 keeps all deadlines but those of MPI's own start and of its own death."""
        now = time.monotonic()
        if self.ledger.phase == "launch":
            return now > self._began + LAUNCH_TIMEOUT_S * self.patience
        # After a stop order rank 0 reports that it is alive: the remaining work can take long.
        last = max(self._interrupted_at, self._last_event_s)
        return bool(self._interrupted_at) and now > last + STOP_TIMEOUT_S * self.patience

    def _take(self, event: Rank0Event, raw: bytes, control: Control) -> None:
        self.ledger.take(event)
        self.record.keep(event, raw, self.ledger)
        if isinstance(event, Piece):
            return
        self._show(event)
        self._pace_loads(event)
        if self.gateways.take(event):
            send_order(control, rank0_orders.Looked())
        if isinstance(event, Phase) and event.name == "gather":
            self.dut_host.after()
        if isinstance(event, Phase) and event.name in ("look", "plan"):
            self._answer(control, event.name)

    def _show(self, event: Shown) -> None:
        """A terminal that is gone is no reason to end."""
        with contextlib.suppress(OSError):
            self.watch(self.ledger, event)

    def _end_without_disk(self, control: Control) -> None:
        if self.record.disk_problem and not self._interrupted_at:
            self._stop(control, self.record.disk_problem)

    def _stop(self, control: Control, problem: str = "") -> None:
        self._interrupted_at = time.monotonic()
        send_order(control, rank0_orders.Stop(problem))

    def _answer(self, control: Control, phase: str) -> None:
        """Rank 0 waits for it in these phases; a refusal ends the run, and nothing was sent."""
        try:
            if phase == "look":
                self._look()
                self._ask_gateways(control)
            else:
                self._hand_out(control)
        except OSError as error:
            self._refusal = PktswarmError(f"{error.filename or self.results}: {error.strerror}; nothing was sent")
        except PktswarmError as error:
            self._refusal = error
        if self._refusal is not None:
            send_order(control, rank0_orders.Stop(str(self._refusal)))

    def _look(self) -> None:
        """Checks the nodes and updates the plan once all have reported, before clock reading. Raises PktswarmError."""
        self._has_met_all = True
        nodes = self.ledger.nodes.values()
        refuse_held(nodes)
        allowlist.refuse_interfaces(nodes, self.allow)
        self._plan_by_what_holds(reports_by_host(nodes))
        self.plan = shared_wires.checked(self.plan, nodes, self.allow)
        if self.plan.upf is not None:
            self._set_up(self.plan.upf)
        self.dut_host.before()

    def _ask_gateways(self, control: Control) -> None:
        """Rank 0 waits for Looked until all gateways have answered, or not."""
        for order in self.gateways.begin(self.plan.legs, self.ranks, self.ledger.nodes.values()):
            send_order(control, order)
        if not self.gateways.waiting:
            send_order(control, rank0_orders.Looked())

    def _hand_out(self, control: Control) -> None:
        self.ledger.resolved = resolved = self._resolve()
        folder = self.record.begin(self.scenario.name, resolved)
        if self.control_plane is not None:
            write_users(folder.path / "sessions.csv", self.control_plane.sessions)
        for rank in self.ranks:
            host = rank.host.name
            task = resolved.sends.get(host) if rank.role == "transmit" else resolved.receives.get(host)
            files = (resolved.files if rank.role == "transmit" else resolved.answer_files).get(host, [])
            if task is not None:
                listed = [File(name, len(data)) for name, data in files]
                text = json.dumps(to_json(task), separators=(",", ":"))
                order = rank0_orders.HandTask(rank.number, text, listed, 1 / self.scenario.samples_per_s)
                send_order(control, order, b"".join(data for _, data in files))
            for file_name, data in files if self.keep_sent else ():
                folder.sent(file_name, data)
        drain_s, several = self.scenario.receive.drain_s, self._kept.several
        send_order(control, rank0_orders.Go(self.plan.limit_s, drain_s, several, resolved.connects))

    def _resolve(self) -> Resolved:
        nodes = self.ledger.nodes.values()
        reports = reports_by_host(nodes)
        sessions = None if self.control_plane is None else self.control_plane.sessions
        clocks, macs = self.ledger.clocks(), self.gateways.macs
        resolved = resolve(self.scenario, self.plan, hosts_of(self.ranks), reports, clocks, sessions, macs)
        allowed = allowlist.Allowed(self.inventory, allowlist.reported_addresses(nodes))
        allowlist.check_legs(allowed, resolved.legs, self.plan.shares, resolved.tunnels)
        resolved.notes += [*self.plan.notes, *self._not_used, *self.plan.warnings]
        return resolved

    def _plan_by_what_holds(self, reports: dict[str, dict[str, Any]]) -> None:
        """Again, where nodes are not any more what their capacity was measured of, or lack engines since."""
        if self.capacity is None:
            return
        self.capacity, self._not_used = self.capacity.updated_from(reports)
        if plans.limits_of(self.plan, self.scenario, self.capacity) == list(self.plan.limits):
            return
        self.plan = self._planned()
        if [rank.place for rank in ranks(self.inventory, self.plan.legs)] != [rank.place for rank in self.ranks]:
            problem = f"{'; '.join(self._not_used)}: without it other nodes would have to send"
            raise BadInput(self.capacity.path, problem, allowed=f"{capacity.AGAIN} {self.inventory_path}")

    # --- interrupts ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Once: stop in order, gather, report. Twice: at once; the guards restore the nodes all the same."""

        def count(*_: object) -> None:
            self._interrupts += 1

        with signals.handled(count):
            yield

    def _pass_on_interrupts(self, control: Control) -> None:
        if self._interrupts > self._told_to_stop:
            self._told_to_stop = self._interrupts
            self._stop(control)

    # --- the end ------------------------------------------------------------------------------------------------

    def _result(self, launch: Launched) -> Finished:
        if self._refusal is not None:
            self.record.discard()
            raise self._refusal
        if self.ledger.bad_input:
            self.record.discard()
            raise BadInput(self.scenario_path, self.ledger.bad_input)
        if self.folder is None:
            raise self._why_nothing(launch)
        self.ledger.notes += self._aftermath()
        if self.record.disk_problem:
            self.ledger.more_doubts.append(f"{self.record.disk_problem}: the results there are incomplete")
        self.ledger.more_doubts += self.record.captures_missing(self.folder, self.ledger)
        self.ledger.look_at_master_utc(time.monotonic_ns(), time.time_ns() - time.monotonic_ns())
        try:
            compared = self._compared(self.folder)
            outcome = self.ledger.outcome(self.scenario.expect, self._inputs(), compared)
            self.folder.log({"event": "mpiexec", "output": launch.messages()})
            self.folder.write(outcome)
            self.folder.close()
        except OSError as error:
            self.ledger.more_doubts.append(f"{self.folder.path}: {error.strerror}: the results were not written")
            return Finished(
                self.folder.path, self.ledger.outcome(self.scenario.expect, self._inputs(), []), written=False
            )
        return Finished(self.folder.path, outcome)

    def _aftermath(self) -> list[str]:
        lines = [self._without_mpiexec] if self._without_mpiexec else []
        if self.control_plane is not None and self._without_upf:
            lines += aftermath.of_upf(self.ledger, self.plan, self.control_plane)
        return [*lines, *aftermath.of_rates(self.ledger)]

    def _compared(self, folder: Folder) -> list[Compared]:
        """Comparisons of the verified traces; empty if the run did not complete."""
        if self.ledger.stopped or not self.ledger.over:
            return []
        names = {trace.name for trace in self.scenario.traces if trace.verify}
        resolved = self.ledger.resolved
        faults = self.ledger.faults()
        untimed = {host for host in resolved.receives if faults.utc_set(host)}
        return compare(folder.path, resolved.legs, resolved.receives, names, self.ledger.notes, untimed)

    def _why_nothing(self, launch: Launched) -> PktswarmError:
        if self._interrupts:
            return PktswarmError("stopped by the user before anything was sent")
        lost = [f"{node.name}: {node.problem}" for node in self.ledger.nodes.values() if node.problem]
        # A host that cannot be reached ends mpiexec, and it is chance whether rank 0 had come up by then.
        reason = "; ".join(lost) or self.ledger.stopped
        return PktswarmError(reason) if reason else launch.diagnose()

    def _inputs(self) -> RunInputs:
        inputs: RunInputs = {
            "name": self.scenario.name,
            "scenario_file": str(self.scenario_path),
            "hosts_file": str(self.inventory_path),
            "scenario": json.loads(self.scenario.model_dump_json(by_alias=True)),
            "inventory": [host_entry(host) for host in (self.inventory.master, *self.inventory.hosts)],
            "legs": [leg_entry(leg) for leg in self.ledger.resolved.legs],
        }
        if self.capacity is not None:
            inputs["capacity"] = used_capacity(self.ledger.resolved, self.plan.limits, self.capacity, self._not_used)
        if self.control_plane is not None:
            inputs["upf"] = self.control_plane.document
        if self.dut is not None:
            inputs["dut"] = self.dut
        inputs["written"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return inputs
