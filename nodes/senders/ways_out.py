"""The two ways out of the kernel for which kernel/send.bpf.c is compiled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pktswarm.nodes import availability
from pktswarm.traffic.errors import EngineError

LOOP_KERNEL = (5, 17)
"""The first with bpf_loop(), which draws random payload."""
MOST_FIRST_BYTES = 1514
"""The skb has a page when it is made; the program enlarges it for longer frames."""


@dataclass(frozen=True)
class WayOut:
    """`name`: of the engine. `live`: XDP live frames, in batches; otherwise clones of an skb, one by one. `plain`: the
    program for kernels that take no bpf_loop(); None: it needs a newer kernel in any case. `answers`: the object's
    programs for the device's answers to live frames, each with its raw tracepoint."""

    name: str
    program: Path
    plain: Path | None
    live: bool
    answers: tuple[tuple[str, str], ...] = ()

    def program_for(self, release: tuple[int, int], noisy: bool) -> Path:
        """`noisy`: frames have random payload."""
        why = availability.callbacks()
        if self.plain is None or (release >= LOOP_KERNEL and not why):
            return self.program
        if noisy:
            needs = f": {why}" if why else f" needs Linux 5.17, this is {release[0]}.{release[1]}"
            raise EngineError(self.name, f"random payload{needs} (allowed: fill or hex)")
        return self.plain


ANSWERS = (("sum_sent", "xdp_devmap_xmit"), ("sum_refused", "xdp_redirect_err"))
LIVE_FRAMES = WayOut("xdp", availability.SENDER, plain=None, live=True, answers=ANSWERS)
CLONES = WayOut("tc", availability.CLONER, plain=availability.PLAIN_CLONER, live=False)
