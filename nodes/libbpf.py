"""A thin binding to libbpf: load a compiled object, read and write its maps, attach its programs, run one.

libbpf.so.1 comes with iproute2 (package libbpf1), so a node needs no compiler and no Python package for it.
Everything that a BpfObject made (programs, maps, links) is gone when it is closed, or when its process dies.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import struct
from collections.abc import Iterator
from ctypes import byref, c_bool, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Literal

from pktswarm.nodes.btf import Types
from pktswarm.traffic.errors import EngineError

NAME = "libbpf"
LIBRARY = "libbpf.so.1"
OBJECTS = Path(__file__).parent / "bpf"
XdpMode = Literal["native", "generic"]
# linux/if_link.h and linux/bpf.h
_XDP_FLAGS: dict[str, int] = {"generic": 1 << 1, "native": 1 << 2}
_BPF_XDP = 37
_PROGRAM_TYPES = {"tc": 3, "xdp": 6}
_LOG_BYTES, _LOG_KEPT = 1 << 22, 4000
_LIVE_FRAMES = 1 << 1
_LOCKED = 1 << 2
KERNEL_TYPES, CHECKED_BY_CALL = Path("/sys/kernel/btf/vmlinux"), ".rodata.calls"
"""The kernel's own BTF. Kernels of boards often have none."""
_PRINT = ctypes.CFUNCTYPE(c_int, c_int, c_char_p, c_void_p)
_POINTER_RESULTS = (
    "bpf_object__open_file bpf_object__find_program_by_name bpf_object__find_map_by_name bpf_map__initial_value "
    "bpf_program__attach_raw_tracepoint btf__parse_elf btf__type_by_id btf__name_by_offset bpf_object__btf"
).split()


class _LinkCreateOptions(ctypes.Structure):
    _fields_ = (("size", c_size_t), ("flags", c_uint32), ("rest", ctypes.c_uint8 * 44))


class _TestRunOptions(ctypes.Structure):
    """struct bpf_test_run_opts of libbpf's bpf.h."""

    _fields_ = (
        ("size", c_size_t),
        ("data_in", c_char_p),
        ("data_out", c_void_p),
        ("data_size_in", c_uint32),
        ("data_size_out", c_uint32),
        ("ctx_in", c_char_p),
        ("ctx_out", c_void_p),
        ("ctx_size_in", c_uint32),
        ("ctx_size_out", c_uint32),
        ("retval", c_uint32),
        ("repeat", c_int),
        ("duration", c_uint32),
        ("flags", c_uint32),
        ("cpu", c_uint32),
        ("batch_size", c_uint32),
    )


class _Library:
    """The loaded library, and its messages since the last error."""

    def __init__(self) -> None:
        self.calls = ctypes.CDLL(LIBRARY, use_errno=True)
        self.messages: list[str] = []
        for name in _POINTER_RESULTS:
            getattr(self.calls, name).restype = c_void_p
        self.calls.btf__resolve_size.restype = ctypes.c_int64
        self._keep = _PRINT(self._take_message)  # ctypes does not keep it alive
        self.calls.libbpf_set_print(self._keep)

    def _take_message(self, level: int, form: bytes, arguments: int) -> int:
        if level <= 1:  # warnings and the output of the kernel's verifier, without debugging
            text = ctypes.create_string_buffer(1 << 16)
            ctypes.CDLL(None).vsnprintf(text, c_size_t(len(text)), form, c_void_p(arguments))
            self.messages = [*self.messages[-200:], text.value.decode(errors="replace")]
        return 0

    def error(self, doing: str) -> EngineError:
        number = ctypes.get_errno()
        messages, self.messages = "".join(self.messages), []
        return EngineError(NAME, f"{doing}: {os.strerror(number)}", messages)


@cache
def _library() -> _Library:
    return _Library()


def kernel() -> tuple[int, int]:
    """Returns the kernel's version, which determines the features of BPF."""
    major, minor = os.uname().release.split("-")[0].split(".")[:2]
    return int(major), int(minor)


def missing() -> str:
    """Returns why libbpf cannot be used on this node; empty when it can. Needs no root."""
    try:
        _library()
    except OSError:
        return f"{LIBRARY} is not installed (apt install libbpf1)"
    return ""


class _ProgramOptions(ctypes.Structure):
    """struct bpf_prog_load_opts, up to its log."""

    _fields_ = (
        ("size", c_size_t),
        ("attempts", c_int),
        ("expected_attach_type", c_uint32),
        ("unused", c_uint32 * 7),
        ("fd_array", c_void_p),
        ("func_info", c_void_p),
        ("func_info_count", c_uint32),
        ("func_info_size", c_uint32),
        ("line_info", c_void_p),
        ("line_info_count", c_uint32),
        ("line_info_size", c_uint32),
        ("log_level", c_uint32),
        ("log_size", c_uint32),
        ("log", c_void_p),
    )


def instructions(*program: tuple[int, int, int]) -> bytes:
    """Returns a program of (code, destination register, value) as the kernel loads it (struct bpf_insn)."""
    return b"".join(struct.pack("=BBhi", code, register, 0, value) for code, register, value in program)


def load_program(name: str, instructions: bytes, kind: Literal["xdp", "tc"] = "xdp") -> int:
    """Loads a program given as instructions; returns its descriptor, which the caller closes.

    Raises EngineError with the verifier's output.
    """
    log = ctypes.create_string_buffer(_LOG_BYTES)
    # A tail call requires both programs to have the same attach type.
    attach_type = _BPF_XDP if kind == "xdp" else 0
    options = _ProgramOptions(expected_attach_type=attach_type, log_size=len(log), log=ctypes.addressof(log))
    options.size = ctypes.sizeof(options)
    fd = int(
        _library().calls.bpf_prog_load(
            _PROGRAM_TYPES[kind],
            name.encode(),
            b"GPL",
            instructions,
            c_size_t(len(instructions) // 8),
            byref(options),
        )
    )
    if fd < 0:
        number = ctypes.get_errno()
        output = log.value.decode(errors="replace")[-_LOG_KEPT:]
        raise EngineError(NAME, f"the kernel rejected the program {name}: {os.strerror(number)}", output)
    return fd


class BpfMap:
    """A map that is loaded. Keys and values are bytes as the kernel sees them: this machine's byte order."""

    def __init__(self, name: str, fd: int, key_bytes: int, value_bytes: int, entries: int) -> None:
        self.name, self.fd, self.entries = name, fd, entries
        self.key_bytes, self.value_bytes = key_bytes, value_bytes

    def lookup(self, key: bytes, value_bytes: int | None = None, locked: bool = False) -> bytes | None:
        """Returns the value of a key; None if there is no such key.

        `value_bytes`: for a per-CPU map, the size of the values on all possible CPUs. `locked`: copied under the lock
        of the value, so that its figures are consistent.
        """
        value = ctypes.create_string_buffer(value_bytes or self.value_bytes)
        flags = c_uint64(_LOCKED if locked else 0)
        if _library().calls.bpf_map_lookup_elem_flags(self.fd, key, value, flags) == 0:
            return value.raw
        if ctypes.get_errno() == errno.ENOENT:
            return None
        raise _library().error(f"reading map {self.name}")

    def update(self, key: bytes, value: bytes) -> None:
        if len(key) != self.key_bytes or len(value) < self.value_bytes:
            raise EngineError(NAME, f"map {self.name}: an entry has {self.key_bytes} + {self.value_bytes} bytes")
        if _library().calls.bpf_map_update_elem(self.fd, key, value, c_uint64(0)):
            raise _library().error(f"writing map {self.name}")

    def delete(self, key: bytes) -> None:
        if _library().calls.bpf_map_delete_elem(self.fd, key) and ctypes.get_errno() != errno.ENOENT:
            raise _library().error(f"deleting from map {self.name}")

    def keys(self) -> Iterator[bytes]:
        """Yields every key, in no particular order."""
        before, after = None, ctypes.create_string_buffer(self.key_bytes)
        while _library().calls.bpf_map_get_next_key(self.fd, before, after) == 0:
            before = after.raw
            yield before

    def memory(self) -> mmap.mmap:
        """Returns the values of an array map with BPF_F_MMAPABLE (as global variables have), shared with the kernel.

        Entries follow each other, aligned to 8 bytes.
        """
        length = -(-self.value_bytes // 8) * 8 * self.entries
        pages = -(-length // mmap.PAGESIZE) * mmap.PAGESIZE
        return mmap.mmap(self.fd, pages, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)


class BpfLink:
    """An attached program. close() and the end of this process detach it."""

    def __init__(self, fd: int, handle: int | None = None) -> None:
        self.fd, self._handle = fd, handle

    def close(self) -> None:
        if self._handle is not None:
            _library().calls.bpf_link__destroy(c_void_p(self._handle))
        elif self.fd >= 0:
            os.close(self.fd)
        self.fd, self._handle = -1, None


class BpfObject:
    """An object file: opened, adjusted (set_entries, set_constants), loaded, used; close() unloads it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._links: list[BpfLink] = []
        if missing():
            raise EngineError(NAME, missing())
        self._handle = _library().calls.bpf_object__open_file(str(path).encode(), None)
        if not self._handle:
            raise _library().error(f"opening {path.name}")

    def __enter__(self) -> BpfObject:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for link in self._links:
            link.close()
        self._links = []
        if self._handle:
            _library().calls.bpf_object__close(c_void_p(self._handle))
            self._handle = None

    def _find_map(self, name: str) -> int:
        handle = _library().calls.bpf_object__find_map_by_name(c_void_p(self._handle), name.encode())
        if not handle:
            raise EngineError(NAME, f"{self.path.name} has no map {name}")
        return int(handle)

    def set_entries(self, name: str, entries: int) -> None:
        """Sets the number of entries of a map. Before load()."""
        if _library().calls.bpf_map__set_max_entries(c_void_p(self._find_map(name)), c_uint32(entries)):
            raise _library().error(f"sizing map {name}")

    def set_constants(self, name: str, value: bytes) -> None:
        """Fills a whole read-only section (".rodata", ".rodata.settings"). Before load()."""
        size = c_size_t()
        place = _library().calls.bpf_map__initial_value(c_void_p(self._find_map(name)), byref(size))
        if not place or len(value) != size.value:
            raise EngineError(NAME, f"{name} of {self.path.name} has {size.value} bytes, not {len(value)}")
        ctypes.memmove(place, value, len(value))

    def leave_out(self, program: str) -> None:
        """Excludes a program from loading. Before load()."""
        if _library().calls.bpf_program__set_autoload(c_void_p(self._find_program(program)), c_bool(False)):
            raise _library().error(f"leaving out program {program}")

    def types(self) -> Types:
        handle = _library().calls.bpf_object__btf(c_void_p(self._handle))
        if not handle:
            raise _library().error(f"reading the types of {self.path.name}")
        return Types(_library().calls, handle)

    def load(self) -> None:
        # Without types of its own a kernel does not recognize the context of a global function, which it checks once
        # for all; a static one it checks at each call, with what is passed there.
        if not KERNEL_TYPES.exists():
            self.types().make_static()
            if _library().calls.bpf_object__find_map_by_name(c_void_p(self._handle), CHECKED_BY_CALL.encode()):
                self.set_constants(CHECKED_BY_CALL, bytes(c_uint32(1)))
        if _library().calls.bpf_object__load(c_void_p(self._handle)):
            raise _library().error(f"the kernel rejected {self.path.name}")

    def map(self, name: str) -> BpfMap:
        """Returns a map; global variables are maps too: ".bss", ".data", ".rodata"."""
        calls, handle = _library().calls, c_void_p(self._find_map(name))
        reads = calls.bpf_map__fd, calls.bpf_map__key_size, calls.bpf_map__value_size, calls.bpf_map__max_entries
        return BpfMap(name, *(int(read(handle)) for read in reads))

    def _find_program(self, name: str) -> int:
        handle = _library().calls.bpf_object__find_program_by_name(c_void_p(self._handle), name.encode())
        if not handle:
            raise EngineError(NAME, f"{self.path.name} has no program {name}")
        return int(handle)

    def program_fd(self, name: str) -> int:
        return int(_library().calls.bpf_program__fd(c_void_p(self._find_program(name))))

    def attach_raw_tracepoint(self, program: str, event: str) -> BpfLink:
        """Attaches to `event`, without its group: "xdp_devmap_xmit". Needs neither tracefs nor BTF on the node."""
        handle = _library().calls.bpf_program__attach_raw_tracepoint(
            c_void_p(self._find_program(program)), event.encode()
        )
        if not handle:
            raise _library().error(f"attaching to the tracepoint {event}")
        return self._kept(BpfLink(-1, int(handle)))

    def attach_xdp(self, program: str, interface_index: int, mode: XdpMode, program_fd: int | None = None) -> BpfLink:
        """Attaches a program of this object, or the one with descriptor `program_fd`.

        Raises EngineError where the driver has no native XDP, or another program is attached.
        """
        attached = self.program_fd(program) if program_fd is None else program_fd
        return self._kept(BpfLink(attach_program(attached, interface_index, mode)))

    def program_id(self, name: str) -> int:
        """Returns the id by which another process of root opens the program: program_by_id()."""
        return _id(self.program_fd(name), "prog_id:")

    def map_id(self, name: str) -> int:
        """Returns the id by which another process of root opens the map: shared_memory()."""
        return _id(self.map(name).fd, "map_id:")

    def _kept(self, link: BpfLink) -> BpfLink:
        self._links.append(link)
        return link


def struct_layout(path: Path, name: str) -> dict[str, tuple[int, int]]:
    """Returns field → (offset, size) in bytes of a struct of a compiled object, from its BTF. Needs no root."""
    calls = _library().calls
    handle = calls.btf__parse_elf(str(path).encode(), None)
    if not handle:
        raise _library().error(f"reading the types of {path.name}")
    try:
        types = Types(calls, handle)
        number = types.struct(name)
        if number is None:
            raise EngineError(NAME, f"{path.name} has no struct {name}")
        return dict(types.members(number))
    finally:
        calls.btf__free(c_void_p(handle))


def attach_program(program_fd: int, interface_index: int, mode: XdpMode) -> int:
    """Attaches a program; returns the descriptor of the link. Closing it detaches the program."""
    options = _LinkCreateOptions(size=ctypes.sizeof(_LinkCreateOptions), flags=_XDP_FLAGS[mode])
    fd = int(_library().calls.bpf_link_create(program_fd, interface_index, _BPF_XDP, byref(options)))
    if fd < 0:
        raise _library().error(f"attaching a program in {mode} mode to interface {interface_index}")
    return fd


def attached_program(interface_index: int) -> int:
    """Returns the id of the XDP program on an interface; 0 where there is none."""
    number = c_uint32()
    if _library().calls.bpf_xdp_query_id(interface_index, 0, byref(number)) < 0:
        raise _library().error(f"querying the program on interface {interface_index}")
    return number.value


def _id(fd: int, field: str) -> int:
    for line in Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    raise EngineError(NAME, f"/proc/self/fdinfo/{fd} has no {field.rstrip(':')}")


def program_by_id(number: int) -> int:
    """Returns a descriptor of a program that another process has loaded."""
    fd = int(_library().calls.bpf_prog_get_fd_by_id(c_uint32(number)))
    if fd < 0:
        raise _library().error(f"program {number}")
    return fd


def shared_memory(map_id: int, length: int) -> mmap.mmap:
    """Returns the values of a map that another process has loaded, as BpfMap.memory()."""
    fd = int(_library().calls.bpf_map_get_fd_by_id(c_uint32(map_id)))
    if fd < 0:
        raise _library().error(f"map {map_id}")
    return mmap.mmap(fd, -(-length // mmap.PAGESIZE) * mmap.PAGESIZE)


XDP_PASS = 2


def run_once(program_fd: int, frame: bytes) -> tuple[int, bytes]:
    """Runs a program on one frame; returns its verdict and the resulting frame."""
    out = ctypes.create_string_buffer(len(frame) + 16384)  # cast() would make a cycle of it, which lasts
    options = _TestRunOptions(
        data_in=frame,
        data_size_in=len(frame),
        data_out=ctypes.addressof(out),
        data_size_out=len(out),
        repeat=1,
    )
    if _test_run(program_fd, options):
        raise _library().error("running a program on a frame")
    return options.retval, out.raw[: options.data_size_out]


def run_live(program_fd: int, frame: bytes, repeat: int, batch: int) -> int:
    """Runs BPF_PROG_RUN with live frames: returns after `repeat` runs (0) or at a signal to this thread (EINTR).

    The other threads of this process continue. `frame`: the initial content of every page, and the size of a frame
    before bpf_xdp_adjust_tail. Raises EngineError on any other result.
    """
    options = _TestRunOptions(
        data_in=frame, data_size_in=len(frame), repeat=repeat, flags=_LIVE_FRAMES, batch_size=batch
    )
    if _test_run(program_fd, options) == 0:
        return 0
    if ctypes.get_errno() == errno.EINTR:
        return errno.EINTR
    raise _library().error("sending live frames")


def run_clones(program_fd: int, frame: bytes, repeat: int) -> int:
    """Runs a SCHED_CLS program `repeat` times on one skb; ends as run_live(). `frame`: its bytes at first."""
    options = _TestRunOptions(data_in=frame, data_size_in=len(frame), repeat=repeat)
    if _test_run(program_fd, options) == 0:
        return 0
    if ctypes.get_errno() == errno.EINTR:
        return errno.EINTR
    raise _library().error("sending clones")


def _test_run(program_fd: int, options: _TestRunOptions) -> int:
    options.size = ctypes.sizeof(_TestRunOptions)
    return int(_library().calls.bpf_prog_test_run_opts(program_fd, byref(options)))


def possible_cpus() -> int:
    """Returns the number of values of a per-CPU map for each key."""
    return int(_library().calls.libbpf_num_possible_cpus())
