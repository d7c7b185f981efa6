"""A setting of MPICH that can be changed only while it runs, through MPI's tool interface (MPI 4.1, chapter 15)."""

from __future__ import annotations

import ctypes

TRIES = 100
"""Tries of one send, during which MPI does nothing else. Measured: 0.6 ms on a desktop processor, up to 55 ms on one
that four processes share. A living rank can refuse as often (seen with 128 ranks on two processors), so the send is
repeated."""
TRY_AGAIN_S, REFUSED_S = 0.05, 1.5
"""Interval between two sends that are refused; a rank that refuses for REFUSED_S is dead."""
TAG_FAREWELL = 5
"""The last message of each rank to rank 0, and then of rank 0 to each: MPI_Finalize over TCP synchronizes nobody, and
the end of one rank can reach another one that is not ready for it (pmi.Relay)."""
FAREWELL_S = 2.0
"""A rank that has died meanwhile sends none. The command line waits longer than that for the ranks' end."""


def give_up_on_the_dead(tries: int = TRIES) -> bool:
    """From now on a send to a rank whose host refuses the connection fails after `tries`.

    By default MPICH tries for ever, inside the call. The limit is not set from the start, because a connection that is
    not established yet looks the same. Returns False where this MPICH has no such setting.
    """
    try:
        library = ctypes.CDLL("libmpi.so.12", mode=ctypes.DEFAULT_MODE)
    except OSError:
        return False
    provided, index, count = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    handle, value = ctypes.c_void_p(), ctypes.c_int(tries)
    # Each step needs the one before it.
    return bool(
        library.MPI_T_init_thread(0, ctypes.byref(provided)) == 0
        and library.MPI_T_cvar_get_index(b"MPIR_CVAR_CH4_OFI_MAX_EAGAIN_RETRY", ctypes.byref(index)) == 0
        and library.MPI_T_cvar_handle_alloc(index, None, ctypes.byref(handle), ctypes.byref(count)) == 0
        and library.MPI_T_cvar_write(handle, ctypes.byref(value)) == 0
    )
