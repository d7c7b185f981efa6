"""The command line from outside: help, exit statuses, one message for what is wrong."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from in_process import Call
from pktswarm.master.cli.defaults import DEFAULT_HOSTS
from pktswarm.traffic.dependence import ESTIMATORS, STARTS

PKTSWARM = Path(sys.executable).with_name("pktswarm")
TRACE = "configs/traces/lab.pcapng"
UPF_SCENARIOS = [path for path in Path("configs/upf").glob("*.yaml") if path.name != "sessions.yaml"]
"""Without configs/upf/sessions.yaml, which sends no packets: a file of `pktswarm sessions`."""
EXAMPLE = ["--hosts", "hosts/example.yml"]


def call(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PKTSWARM, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    "command",
    [
        "run",
        "check",
        "schema",
        "recount",
        "report",
        "compare",
        "status",
        "verify",
        "dependence",
        "preview",
        "search",
        "lab up",
        "lab down",
        "lab exec",
        "lab vm",
    ],
)
def test_every_command_has_help(command: str) -> None:
    done = call(*command.split(), "--help")
    assert done.returncode == 0 and "Usage: pktswarm" in done.stdout


def test_check_explains_every_scenario_that_ships_on_the_references_cluster(call_here: Call) -> None:
    for scenario in sorted(Path("configs").glob("*.yaml")):
        text, hosts, path = scenario.read_text(), EXAMPLE, "odroid-t1 → odroid-r1"
        if "direction: both" in text:
            hosts, path = ["--hosts", "hosts/both-roles.yml"], "left → right"
        if "sessions: users" in text:
            hosts, path = ["--hosts", "hosts/upf.yml"], "gnb-1 → core-1"
        done = call_here("check", scenario, *hosts)
        assert done.returncode == 0, done.stderr
        assert path in done.stdout and "sending takes about" in done.stdout


@pytest.mark.parametrize("scenario", sorted([*Path("configs").glob("*.yaml"), *UPF_SCENARIOS]), ids=str)
def test_check_needs_neither_a_lab_nor_an_inventory(call_here: Call, scenario: Path) -> None:
    if DEFAULT_HOSTS.exists():
        pytest.skip(f"{DEFAULT_HOSTS} exists and is the default")
    done = call_here("check", scenario)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\nnote: no inventory: names, roles and addresses of hosts") == 1


@pytest.mark.parametrize("hosts", [[], EXAMPLE])
@pytest.mark.parametrize("command", ["check", "preview"])
def test_every_stream_that_no_engine_can_send_is_refused_at_its_line(
    call_here: Call, tmp_path: Path, command: str, hosts: list[str]
) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "name: s\nstreams:\n"
        "  - {name: late, engine: xdp, rate_pps: 9, count_packets: 9, options: {late: later}}\n"
        "  - {name: right, engine: xdp, rate_pps: 9, count_packets: 9, options: {late: stretch}}\n"
        "  - {name: any, rate_pps: 9, count_packets: 9, options: {lat: skip}}\n"
    )
    done = call_here(command, path, *hosts)
    assert done.returncode == 2 and done.stdout == ""
    late, other = done.stderr.splitlines()
    problem = "engine = 'xdp': no engine can send 'late': xdp: option late = 'later': must be stretch, catch_up or"
    assert f"{path}:3: streams.0.{problem}" in late
    problem = "engine = 'auto': no engine can send 'any': xdp: unknown option 'lat' for a stream (allowed: burst, late"
    assert f"{path}:5: streams.2.{problem}" in other


def test_a_time_option_takes_a_unit() -> None:
    plain, with_unit = (
        call("preview", "configs/first.yaml", "--json", "--bin", text).stdout for text in ("0.02", "20ms")
    )
    assert json.loads(plain) == json.loads(with_unit)


def test_preview_without_an_inventory_reports_what_is_not_checked(call_here: Call) -> None:
    document = json.loads(call_here("preview", "configs/first.yaml", "--json").stdout)
    assert [note for note in document["notes"] if note.startswith("no inventory: ")]


def test_check_as_json_has_every_leg() -> None:
    document = json.loads(call("check", "configs/demo.yaml", *EXAMPLE, "--json").stdout)
    assert sum(leg["intended_packets"] for leg in document["legs"]) == 9000 + 9000 + 4500 + 895


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check", "nowhere.yaml", *EXAMPLE], "nowhere.yaml: there is no such file"),
        (["check", "configs/demo.yaml", "--hosts", "hosts/lab-gone.yml"], "pktswarm lab up --name gone"),
        (["recount", "nowhere"], "nowhere: no results of a run here"),
        (["verify", "nowhere", TRACE], "nowhere: no results of a run here"),
        (["status", "nowhere"], "nowhere: there is no such folder"),
        (["status", "docs"], "docs: no results of a run here"),
        (
            ["run", "configs/demo.yaml", *EXAMPLE, "--metrics", "70000"],
            "--metrics = 70000: not a port (allowed: 0 (any)",
        ),
        (["lab", "up", "--transmit", "0"], "transmit"),
        (["search", "configs/search.yaml", *EXAMPLE, "--loss", "101%"], "--loss = '101%': loss out of range"),
        (["search", "configs/gtpu.yaml", "--hosts", "hosts/lab-gone.yml"], "pktswarm lab up --name gone"),
        (["dependence", "nowhere.pcap"], "nowhere.pcap: there is no such file"),
        (["dependence", "README.md"], "README.md = '23207"),
        (
            ["dependence", TRACE, "--estimator", "higuchi"],
            "--estimator = 'higuchi': unknown estimator (allowed: variance-time",
        ),
        (["dependence", TRACE, "--start", "never"], "--start = 'never': unknown start (allowed: together, spread"),
        (["dependence", TRACE, "--bin", "0"], "--bin = 0.0: bin width out of range"),
        (
            ["dependence", TRACE, "--bin", "1gbit"],
            "--bin = '1gbit': wrong unit: 'gbit' is of a bit rate, not of a time",
        ),
        (["dependence", TRACE, "--offset", "-1"], "--offset = '-1': out of range (allowed: 0 or more s)"),
        (["search", "configs/search.yaml", "--duration", "2h"], "--duration = 7200.0: trial duration out of range"),
        (["search", "configs/search.yaml", "--min", "1gbit"], "--min = '1gbit': wrong unit: 'gbit' is of a bit rate"),
        (["search", "configs/search.yaml", "--max", "10m"], "--max = '10m': ambiguous unit 'm'"),
        (["search", "configs/search.yaml", "--max", "inf"], "--max = 'inf': not a packet rate (allowed: a number of"),
        (["y1564", "configs/services/access.yaml", "--step", "x"], "--step = 'x': not a time (allowed: a number of s"),
        (["calibrate", "--seconds", "5 %"], "--seconds = '5 %': wrong unit: '%' is of a percentage, not of a time"),
        (["table", "netspec", "--seconds", "100ms"], "--seconds = '100ms': out of range (allowed: 0.5 or more s)"),
        (
            ["table", "netspec", *EXAMPLE, "--background", "25Mbit,30"],
            "--background = '25Mbit,30': unknown background load",
        ),
        (["lab", "up", "--mtu", "9kbit"], "--mtu = '9kbit': ambiguous unit 'kbit'"),
        (["lab", "up", "--bottleneck-queue", "1ms"], "--bottleneck-queue = '1ms': wrong unit: 'ms' is of a time"),
        (["run", "configs/demo.yaml", "--patience", "0"], "--patience = '0': out of range (allowed: 0.1 or more)"),
        (["rfc2544", *EXAMPLE, "--sizes", "64,9kbit"], "--sizes = '9kbit': ambiguous unit 'kbit'"),
        (["rfc2544", *EXAMPLE, "--sizes", "64,10k"], "--sizes = '10k': frame size out of range"),
        (
            ["search", "configs/search.yaml", "--expect", "latency_p99_us=1kpps"],
            "--expect = 'latency_p99_us=1kpps': is no limit (allowed: a number of us, or with ns, us, ms",
        ),
        (["dependence", TRACE, "--from", "-1"], "--from = -1.0: time scale out of range"),
        (["dependence", TRACE, "--png", "x.jpg"], "--png = 'x.jpg': wrong file name extension (allowed: .png)"),
        (["dependence", TRACE, "--svg", "nowhere/x.svg"], "--svg = 'nowhere': there is no such folder"),
        (["dependence", TRACE, "--csv", "README.md"], "README.md: --csv: cannot be written: File exists"),
        (["dependence", TRACE, "--repeat", "10000", "--scale", "10000"], "(allowed: up to 134,217,728 packets)"),
    ],
)
def test_bad_input_is_one_message_and_status_2(call_here: Call, arguments: list[str], words: str) -> None:
    done = call_here(*arguments)
    assert done.returncode == 2
    assert words in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_the_help_of_dependence_names_what_there_is() -> None:
    text = " ".join(call("dependence", "--help").stdout.replace("│", " ").split())
    assert f"repeatable: {', '.join(ESTIMATORS)};" in text and f"of the instances: {', '.join(STARTS)}." in text


def test_no_other_command_waits_for_scipy() -> None:
    command = [sys.executable, "-c", "import sys, pktswarm.master.cli.app; sys.exit('scipy' in sys.modules)"]
    assert subprocess.run(command, timeout=60, check=False).returncode == 0


def test_dependence_writes_its_figures_its_data_and_a_picture(tmp_path: Path) -> None:
    files = ["--csv", tmp_path / "data", "--png", tmp_path / "a.png", "--svg", tmp_path / "a.svg"]
    done = call("dependence", TRACE, "--repeat", "2", "--scale", "3", *files, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    cases = json.loads(done.stdout)["cases"]
    assert [case["packets"] // cases[0]["packets"] for case in cases] == [1, 3, 2, 6, 3]
    for case in cases:
        assert [one["name"] for one in case["estimates"]] == ["variance-time", "rs", "wavelet", "whittle"]
        assert all(one["low"] <= one["hurst"] <= one["high"] for one in case["estimates"])
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG") and "<svg" in (tmp_path / "a.svg").read_text()
    names = {"autocorrelation", "gaps", "hurst", "rs", "variance-time", "wavelet", "whittle"}
    assert {path.stem for path in (tmp_path / "data").iterdir()} == names
    for path in (tmp_path / "data").iterdir():
        lines = path.read_text().splitlines()
        assert len({line.count(",") - line.count('"') // 2 for line in lines}) <= 2 and len(lines) > 5, path
    hurst = (tmp_path / "data" / "hurst.csv").read_text().splitlines()
    assert len(hurst) == 1 + 5 * 4


def test_dependence_on_the_terminal_says_how_each_interval_was_made() -> None:
    done = call("dependence", TRACE, "--estimator", "wavelet", "--estimator", "whittle", "--estimator", "wavelet")
    assert done.returncode == 0
    assert done.stdout.count("95% interval of") == 2 and "as it is" in done.stdout


@pytest.mark.parametrize("arguments", [[], ["run"], ["fly"], ["check", "--speed", "9"]])
def test_wrong_words_are_status_2(call_here: Call, arguments: list[str]) -> None:
    assert call_here(*arguments).returncode == 2


def test_a_misspelt_command_is_answered_with_its_neighbour(call_here: Call) -> None:
    assert "No such command 'rnu'. Did you mean 'run'?" in call_here("rnu", "configs/demo.yaml").stderr


def test_a_second_ctrl_c_while_it_ends_does_not_change_its_exit_status() -> None:
    program = (
        "import atexit, os, signal, sys; from pktswarm.master.cli import app; "
        "atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT)); sys.argv = ['pktswarm', 'schema']; app.main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_everything_that_cannot_be_planned_is_reported_at_once(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "name: s\nstreams:\n"
        "  - {name: a, from: nobody, to: receive, rate_pps: 9, count_packets: 9}\n"
        "  - {name: b, from: transmit, to: receive, rate: {sine: {mean: 1ks}}, duration_s: 9}\n"
        "  - {name: c, from: transmit, to: receive, rate_pps: 9, count_packets: 9}\n"
        "sources: [{name: d, from: transmit, to: nowhere, source: www, duration_s: 1}]\n"
        "traces: [{name: e, file: missing.pcap, from: transmit, to: receive}]\n"
    )
    done = call("check", path, *EXAMPLE)
    assert done.returncode == 2 and done.stdout == ""
    lines = done.stderr.splitlines()
    words = ("streams.0.from = 'nobody'", "streams.1.rate.sine", "sources.0.to = 'nowhere'", "missing.pcap")
    assert len(lines) == len(words) and all(word in line for word, line in zip(words, lines, strict=True)), lines
