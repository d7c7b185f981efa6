"""pktgen without a kernel: legs to commands, what it cannot do, and the kernel's answers (captured on Linux 6.1)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pktswarm.nodes.senders import pktgen_keeper, pktgen_module, pktgen_proc
from pktswarm.nodes.senders.pktgen import count_of_devices, plan
from pktswarm.traffic.errors import BadInput, EngineError
from pktswarm.traffic.leg import Leg
from pktswarm.traffic.protocol.task import SendTask
from pktswarm.traffic.schedule.pktgen import count_of, device_commands, shares
from pktswarm.traffic.schedule.pktgen_limits import unable

SAMPLES = Path(__file__).parent / "samples"
V4 = {"src": "10.0.0.1", "dst": "10.0.0.2"}
V6 = {"src": "fd00::1", "dst": "fd00::2"}
ETHERNET = {"src": "02:00:00:00:00:01", "dst": "02:00:00:00:00:02"}


def stack(
    *tags: dict[str, Any],
    ethernet: dict[str, Any] | None = None,
    ip: dict[str, Any] | None = None,
    udp: dict[str, Any] | None = None,
) -> dict[str, Any]:
    last = {"udp": {"src": 5000, "dst": 6000} if udp is None else udp}
    return {"headers": [{"ethernet": ethernet or ETHERNET}, *tags, ip or {"ipv4": V4}, last]}


def leg(**changes: Any) -> Leg:
    values: dict[str, Any] = {
        "id": 1,
        "stream": "small",
        "source": "tx1",
        "target": "rx1",
        "kind": "stream",
        "frame": stack(),
        "count_packets": 1000,
    }
    return Leg(**{**values, **changes})


def sample(name: str) -> str:
    return (SAMPLES / f"pktgen-{name}.txt").read_text()


# --- commands --------------------------------------------------------------------------------------------------------


def test_a_plain_leg_says_everything_that_a_module_parameter_could_have_changed() -> None:
    assert device_commands(leg(), 1000) == [
        "count 1000",
        "clone_skb 0",
        "burst 1",
        "delay 0",
        "pkt_size 60",
        "dst_mac 02:00:00:00:00:02",
        "src_mac 02:00:00:00:00:01",
        "dst_min 10.0.0.2",
        "dst_max 10.0.0.2",
        "src_min 10.0.0.1",
        "src_max 10.0.0.1",
        "tos 00",
        "udp_dst_min 6000",
        "udp_dst_max 6000",
        "udp_src_min 5000",
        "udp_src_max 5000",
    ]


def test_the_references_listing() -> None:
    """Listing A.3: pkt_size 64 (pktgen's own, without FCS), count, clone_skb, ratep."""
    commands = device_commands(leg(size_bytes=68, rate_pps=50_000.0, options={"clone_skb": 100_000}), 100_000)
    assert {"pkt_size 64", "count 100000", "clone_skb 100000", "ratep 50000"} <= set(commands)


RANDOM_NET = {"random": ["10.0.1.0", "10.0.1.9"]}


@pytest.mark.parametrize(
    ("frame", "wanted"),
    [
        (stack({"vlan": {"id": 7, "priority": 3, "dei": 1}}), ["vlan_id 7", "vlan_p 3", "vlan_cfi 1"]),
        (stack({"vlan": {"id": 200}}, {"vlan": {"id": 7}}), ["vlan_id 7", "svlan_id 200", "svlan_p 0"]),
        (stack({"mpls": {"label": 16, "tc": 3, "ttl": 9}}, {"mpls": {"label": 17}}), ["mpls 00010609,00011040"]),
        (stack(ip={"ipv4": {**V4, "dscp": 46, "ecn": 1}}), ["tos b9"]),
        (stack(ip={"ipv4": {**V4, "tos": "0x1c"}}), ["tos 1c"]),
        (stack(ip={"ipv4": {**V4, "src": {"increment": ["10.0.1.0", "10.0.1.9"]}}}), ["src_max 10.0.1.9"]),
        (stack(ip={"ipv4": {**V4, "dst": RANDOM_NET}}), ["dst_min 10.0.1.0", "dst_max 10.0.1.10", "flag IPDST_RND"]),
        (stack(ip={"ipv6": {**V6, "traffic_class": 28}}), ["dst6 fd00::2", "src6 fd00::1", "traffic_class 1c"]),
        (stack(ip={"ipv6": V6}), ["flag UDPCSUM"]),
        (stack(ip={"ipv6": {"dst": {"random": ["fd00::10", "fd00::1f"]}}}), ["dst6_min fd00::10", "dst6_max fd00::1f"]),
        (stack(udp={"src": {"increment": [5, 9]}, "dst": 6}), ["udp_src_min 5", "udp_src_max 10"]),
        (stack(udp={"src": 5, "dst": {"random": [1, 65534]}}), ["udp_dst_max 65535", "flag UDPDST_RND"]),
        (
            stack(ethernet={**ETHERNET, "dst": {"random": ["02:00:00:00:00:FE", "02:00:00:00:01:01"]}}),
            ["dst_mac 02:00:00:00:00:fe", "dst_mac_count 4", "flag MACDST_RND"],
        ),
    ],
)
def test_a_frame_as_commands(frame: dict[str, Any], wanted: list[str]) -> None:
    asked = leg(frame=frame, size_bytes=256)
    assert unable(asked) == ""
    assert [command for command in device_commands(asked, 1) if command in wanted] == wanted


def test_a_vlan_comes_before_the_svlan_that_needs_it() -> None:
    commands = device_commands(leg(frame=stack({"vlan": {"id": 1}}, {"vlan": {"id": 2}})), 1)
    assert commands.index("vlan_id 2") < commands.index("svlan_id 1")


@pytest.mark.parametrize(
    ("options", "rate_pps", "pace"),
    [
        ({}, None, "delay 0"),
        ({"delay_ns": 700}, None, "delay 700"),
        ({}, 50_000.0, "ratep 50000"),
        ({"threads": 2}, 50_000.0, "ratep 25000"),
        ({"threads": 2, "burst": 8}, 1000.0, "delay 16000000"),
        ({}, 2.5, "delay 400000000"),
        ({}, 1.5, "delay 666666667"),
    ],
)
def test_the_pace_is_of_one_threads_bursts(options: dict[str, Any], rate_pps: float | None, pace: str) -> None:
    assert pace in device_commands(leg(options=options, rate_pps=rate_pps), 1)


def test_imix_sizes_are_without_fcs_for_pktgen() -> None:
    commands = device_commands(leg(options={"imix_weights": [[64, 7], [572, 4], [1500, 1]]}), 1)
    assert commands[-1] == "imix_weights 60,7 568,4 1496,1"
    assert device_commands(leg(sizes=[[64, 7], [572, 4], [1500, 1]]), 1)[-1] == commands[-1]


# --- how much --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"count_packets": 1000}, [1000]),
        ({"count_packets": 1001, "options": {"threads": 4}}, [251, 250, 250, 250]),
        ({"count_packets": 100, "options": {"threads": 2, "burst": 20}}, [60, 40]),
        ({"count_packets": None, "rate_pps": 500.5, "duration_s": 2.0}, [1001]),
        ({"count_packets": None, "duration_s": 2.0, "options": {"threads": 2}}, [0, 0]),
    ],
)
def test_threads_share_the_count_exactly(changes: dict[str, Any], wanted: list[int]) -> None:
    asked = leg(**changes)
    assert shares(asked) == wanted
    assert sum(wanted) == (count_of(asked) or 0)


def test_legs_take_up_the_threads_in_turn() -> None:
    task = SendTask("eth1", [leg(options={"threads": 2}), leg(count_packets=5)], limit_s=1.0)
    found = [(share.device, share.thread, share.count_packets) for share in plan(task, ["kpktgend_0", "kpktgend_1"])]
    assert found == [("eth1@0", "kpktgend_0", 500), ("eth1@1", "kpktgend_1", 500), ("eth1@2", "kpktgend_0", 5)]


def test_more_threads_than_processors() -> None:
    task = SendTask("eth1", [leg(options={"threads": 3})], limit_s=1.0)
    with pytest.raises(BadInput, match=r"small: options.threads = 3: more threads than CPUs .* \(allowed: 1 to 2\)"):
        plan(task, ["kpktgend_0", "kpktgend_1"])


# --- what it cannot do -----------------------------------------------------------------------------------------------

TCP = {"headers": [{"ethernet": ETHERNET}, {"ipv4": V4}, {"tcp": {"src": 1, "dst": 2}}]}
BLOCK = {"random": ["fd00::1", "fd00::8"]}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kind": "trace"}, "sends streams only"),
        ({"frame": {}}, "cannot send a frame without headers"),
        ({"frame": TCP}, "cannot send ethernet/ipv4/tcp (allowed: ethernet"),
        ({"frame": stack({"vlan": {}}, {"vlan": {}}, {"vlan": {}})}, "cannot send ethernet/vlan/vlan/vlan/ipv4/udp"),
        ({"frame": stack({"vlan": {}}, {"mpls": {"label": 1}})}, "cannot send ethernet/vlan/mpls"),
        ({"frame": stack({"svlan": {"id": 1}}, {"vlan": {"id": 2}})}, "cannot send svlan"),
        ({"frame": stack(*[{"mpls": {"label": 1}}] * 17)}, "cannot send ethernet/mpls"),
        ({"frame": stack(ip={"ipv4": {**V4, "ttl": 64}})}, "ipv4.ttl = 64: must be 32"),
        ({"frame": stack(ip={"ipv4": {**V4, "id": 5}})}, "cannot set ipv4.id"),
        ({"frame": stack(ip={"ipv6": {**V6, "flow_label": 5}})}, "ipv6.flow_label = 5: must be 0"),
        ({"frame": stack(udp={"src": 1, "dst": 2, "checksum": 7})}, "cannot set udp.checksum"),
        ({"frame": stack({"vlan": {"id": {"increment": [1, 9]}}})}, "cannot vary vlan.id"),
        ({"frame": stack(udp={"src": {"decrement": [9, 1]}, "dst": 2})}, "cannot vary udp.src by decrement"),
        ({"frame": stack(udp={"src": {"increment": [1, 9], "step": 2}, "dst": 2})}, "by increment, step"),
        ({"frame": stack(udp={"src": {"list": [1, 9]}, "dst": 2})}, "cannot vary udp.src by list"),
        (
            {"frame": stack(udp={"src": {"increment": [1, 9], "every": 2}, "dst": 2})},
            "cannot vary udp.src by increment, every",
        ),
        ({"frame": stack(udp={"src": {"pick": [1, 9], "weights": [1, 2]}, "dst": 2})}, "udp.src by pick, weights"),
        ({"frame": stack(udp={"src": {"with": "ipv4.dst", "increment": [1, 9]}, "dst": 2})}, "by with, increment"),
        ({"frame": stack(udp={"src": 1, "dst": 2, "checksum": {"off_by": 1}})}, "cannot send a wrong udp.checksum"),
        ({"frame": stack(udp={"src": {"increment": [1, 65535]}, "dst": 2})}, "a range of ports ends at 65534"),
        ({"frame": stack(ip={"ipv4": {"src": "10.0.0.1"}})}, "needs ipv4.dst"),
        ({"frame": stack(ip={"ipv4": {**V4, "dst": {"random": ["126.0.0.0", "128.0.0.0"]}}})}, "cannot draw loopback"),
        ({"frame": stack(ip={"ipv4": {**V4, "src": {"random": ["10.0.0.0", "255.255.255.255"]}}})}, "255.255.255.254"),
        ({"frame": stack(ip={"ipv6": {"dst": BLOCK}}), "size_bytes": 90}, "random fd00::1 to fd00::8: must be random"),
        ({"frame": stack(ip={"ipv6": {**V6, "src": BLOCK}})}, "cannot vary ipv6.src"),
        ({"frame": {**stack(), "payload": {"hex": "00"}}}, "pktgen writes its own"),
        ({"size_bytes": 61}, "frames of 61 bytes: the minimum with these headers is 62 bytes"),
        ({"size_bytes": 81, "frame": stack(ip={"ipv6": V6})}, "is 82 bytes"),
        ({"options": {"imix_weights": [[61, 1], [1500, 1]]}}, "is 62 bytes"),
        ({"sizes": [[61, 1], [1500, 1]]}, "is 62 bytes"),
        ({"sizes": [[64, 1], [100, 1]], "sizes_in_turn": True}, "cannot send sizes in turn"),
        ({"sizes": [[64 + n, 1] for n in range(21)]}, "21 frame sizes: the maximum is 20"),
        ({"sizes": [[64, 1]], "options": {"imix_weights": [[64, 1]]}}, "and several size_bytes exclude each other"),
        ({"sizes": [[64, 1], [100, 1]], "options": {"clone_skb": 2}}, "several sizes exclude clone_skb"),
        ({"options": {"imix_weights": [[64, 0]]}}, "pairs of a size and a weight"),
        ({"options": {"speed": 9}}, "unknown option 'speed' (allowed: burst,"),
        ({"options": {"threads": 0}}, "option threads = 0: must be a whole number from 1"),
        ({"options": {"flags": ["FAST"]}}, "unknown flag 'FAST'"),
        ({"options": {"flows": 70000}}, "option flows = 70000: the maximum is 65536"),
        ({"options": {"delay_ns": 5}, "rate_pps": 5.0}, "exclude each other"),
        ({"rate_pps": 0.9}, "is 1111111111 ns: the maximum is 1000000000 ns"),
        ({"rate_pps": 3.0, "options": {"threads": 4}}, "is 1333333333 ns: the maximum is 1000000000 ns"),
        ({"options": {"burst": 30}}, "1000 packets: must be a multiple of option burst = 30"),
        ({"options": {"threads": 4}, "count_packets": 3}, "3 packets are too few for 4 threads"),
        ({"options": {"clone_skb": 2, "imix_weights": [[64, 1]]}}, "several sizes exclude clone_skb"),
        (
            {"options": {"clone_skb": 10}, "frame": stack(udp={"src": {"increment": [1, 9]}, "dst": 2})},
            "udp.src would not vary: clone_skb or burst sends each frame 10 times",
        ),
    ],
)
def test_what_pktgen_cannot_do_is_told(changes: dict[str, Any], reason: str) -> None:
    assert reason in unable(leg(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"frame": stack(ip={"ipv4": {**V4, "ttl": 32, "df": 0}})},
        {"frame": stack(udp={"src": 65535, "dst": 65535, "checksum": 0})},
        {"frame": {**stack(), "payload": {}}},
        {"frame": stack(ip={"ipv6": {"dst": {"random": ["fd00::10", "fd00::1f"]}}}), "size_bytes": 82},
        {"options": {"clone_skb": 1, "burst": 1}, "frame": stack(udp={"src": {"increment": [1, 9]}, "dst": 2})},
    ],
)
def test_what_pktgen_can_do(changes: dict[str, Any]) -> None:
    assert unable(leg(**changes)) == ""


# --- the kernel's words ----------------------------------------------------------------------------------------------


def test_a_device_before_its_run() -> None:
    device = pktgen_proc.parse_device(sample("idle"))
    assert (device.sent_packets, device.started_us, device.result_packets) == (0, 0, None)


def test_a_device_while_it_runs() -> None:
    device = pktgen_proc.parse_device(sample("running"))
    assert device.sent_packets > 0 and device.started_us > 0
    assert device.result == "Starting" and device.result_packets is None


def test_a_device_after_its_run() -> None:
    device = pktgen_proc.parse_device(sample("ipv4"))
    assert (device.sent_packets, device.result_packets, device.error_packets) == (501, 501, 0)
    assert device.frame_bytes == 60
    assert device.elapsed_us is not None and abs(device.elapsed_us - (device.stopped_us - device.started_us)) <= 2
    assert device.rate_pps == 132562


def test_a_device_with_tags_and_ipv6() -> None:
    device = pktgen_proc.parse_device(sample("ipv6-vlan"))
    assert (device.sent_packets, device.frame_bytes) == (1000, 124)


def test_sizes_of_an_imix() -> None:
    device = pktgen_proc.parse_device(sample("imix"))
    assert [size for size, _ in device.size_counts] == [60, 568, 1496]
    assert sum(count for _, count in device.size_counts) == device.sent_packets == 1200


def test_older_kernels_give_nanoseconds() -> None:
    text = sample("ipv4").replace(") usec,", ") nsec,")
    new, old = pktgen_proc.parse_device(sample("ipv4")), pktgen_proc.parse_device(text)
    assert new.elapsed_us is not None and old.elapsed_us == new.elapsed_us / 1000


def test_threads_and_their_devices() -> None:
    assert pktgen_proc.parse_thread(sample("thread-running")) == pktgen_proc.Thread(["t0@0"], [])
    assert pktgen_proc.parse_thread(sample("thread-ipv4")) == pktgen_proc.Thread([], ["t0@0"])


@pytest.mark.parametrize("text", ["", "Params: count 5\n", sample("ipv4").replace("pkts-sofar", "pkts")])
def test_a_device_that_cannot_be_read_is_an_error(text: str) -> None:
    with pytest.raises(EngineError, match="cannot be read"):
        pktgen_proc.parse_device(text)


def test_a_thread_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(EngineError, match="cannot be read"):
        pktgen_proc.parse_thread("Name: kpktgend_0")


def test_a_result_that_contradicts_the_counter_is_an_error() -> None:
    with pytest.raises(EngineError, match="disagrees"):
        pktgen_proc.parse_device(sample("ipv4").replace("pkts-sofar: 501", "pkts-sofar: 500"))


@pytest.mark.parametrize(
    ("command", "answer", "confirmed"),
    [
        ("count 100", "OK: count=100", True),
        ("pkt_size 20", "OK: pkt_size=42", False),
        ("ratep 50000", "OK: rate=50000", True),
        ("vlan_p 9", "ERROR: vlan_p must be 0-7", False),
        ("dst_mac 02:00:00:00:00:0A", "OK: dstmac 02:00:00:00:00:0a", True),
        ("tos b8", "OK: tos=0xb8", True),
        ("dst6 fd00:0::2", "OK: dst6=fd00::2", True),
        ("dst6 fd00::3", "OK: dst6=fd00::2", False),
        ("flag UDPCSUM", "OK: flags=0x40", True),
        ("flag IPSRC_RND", "OK: flags=0x40", False),
        ("rem_device_all", "OK: rem_device_all", True),
    ],
)
def test_an_answer_confirms_its_command_or_not(command: str, answer: str, confirmed: bool) -> None:
    assert pktgen_proc.answered(command, answer, "     Flags: UDPCSUM  \n") is confirmed


def test_imix_weights_have_no_answer_of_their_own() -> None:
    assert pktgen_proc.answered("imix_weights 60,7 568,4 1496,1", "OK: flags=0x0", sample("imix"))
    assert not pktgen_proc.answered("imix_weights 60,7", "OK: flags=0x0", sample("imix"))


# --- counts ----------------------------------------------------------------------------------------------------------


def test_a_count_adds_up_its_devices() -> None:
    count = count_of_devices(leg(), [sample("ipv4"), sample("ipv6-vlan")])
    assert (count.sent_packets, count.failed_packets, count.note) == (1501, 0, "")
    assert count.sent_bytes == 501 * 60 + 1000 * 124
    assert count.started_ns is not None and count.ended_ns is not None and count.started_ns < count.ended_ns
    assert "OK: " in count.output


def test_a_count_of_an_imix_has_its_bytes() -> None:
    device = pktgen_proc.parse_device(sample("imix"))
    asked = leg(options={"imix_weights": [[64, 7], [572, 4], [1500, 1]]})
    assert count_of_devices(asked, [sample("imix")]).sent_bytes == sum(a * b for a, b in device.size_counts)


def test_a_device_that_never_started_is_noted() -> None:
    count = count_of_devices(leg(), [sample("idle"), sample("ipv4")])
    assert (count.sent_packets, count.note) == (501, "1 of 2 threads never started")


def test_a_device_that_still_runs_has_no_count() -> None:
    with pytest.raises(EngineError, match="no result: Starting"):
        count_of_devices(leg(), [sample("running")])


# --- its processes ---------------------------------------------------------------------------------------------------


def test_the_keeper_is_light_and_alone() -> None:
    """It is on the way of every start, and runs without the virtual environment's packages."""
    command = [sys.executable, "-I", "-S", "-X", "importtime", pktgen_keeper.__file__, "0"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
    assert done.stdout.splitlines()[0] == "ready"
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert not loaded & {"pathlib", "subprocess", "typing", "dataclasses", "pktswarm"}


def test_the_keeper_goes_when_its_input_closes() -> None:
    command = [sys.executable, "-I", "-S", pktgen_keeper.__file__, "60"]
    keeper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert keeper.stdin is not None and keeper.stdout is not None
    assert keeper.stdout.readline() == b"ready\n"
    keeper.stdin.close()
    assert keeper.wait(timeout=5) == 0


def test_a_kernel_without_pktgen_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pktgen_module, "LOADED", tmp_path / "absent")
    monkeypatch.setattr(pktgen_module, "_modprobe", lambda *_: 1)
    assert pktgen_module.missing() == (
        f"the kernel {os.uname().release} has no module pktgen (CONFIG_NET_PKTGEN, see kernel/README.md)"
    )
    monkeypatch.setattr(pktgen_module, "LOCK", tmp_path / "lock")
    module = pktgen_module.Module()
    with pytest.raises(EngineError, match="has no module pktgen"):
        module.load()
    module.unload()
    module.unload()
    assert not (tmp_path / "lock").exists()


def test_the_last_user_unloads_what_one_of_us_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls: list[tuple[str, ...]] = []
    loaded = tmp_path / "module"

    def modprobe(*options: str) -> int:
        calls.append(options)
        loaded.rmdir() if "--remove" in options else loaded.mkdir()
        return 0

    monkeypatch.setattr(pktgen_module, "LOADED", loaded)
    monkeypatch.setattr(pktgen_module, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(pktgen_module, "_modprobe", modprobe)
    first, second = pktgen_module.Module(), pktgen_module.Module()
    first.load()
    second.load()
    first.unload()
    assert calls == [()]
    second.unload()
    assert calls == [(), ("--remove",)]
    assert not (tmp_path / "lock").exists()


def test_a_module_that_was_there_before_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pktgen_module, "LOADED", tmp_path)
    monkeypatch.setattr(pktgen_module, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(pktgen_module, "_modprobe", lambda *_: pytest.fail("nothing to load or unload"))
    module = pktgen_module.Module()
    module.load()
    module.unload()
