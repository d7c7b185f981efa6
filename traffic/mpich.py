"""A setting of MPICH's that can only be made while it runs, by MPI's tool interface (MPI 4.1, chapter 15)."""

from __future__ import annotations

import ctypes

EAGAIN_RETRIES = 20_000
"""Measured: about 0.1 s of trying on a desktop processor; a board may take ten times that, still under 2 s."""


def give_up_on_the_dead() -> bool:
    """From now on a send to a rank whose host refuses the connection fails after EAGAIN_RETRIES.

    By default MPICH tries for ever, inside the call, and everybody else would wait with it. Not set from the start,
    because connections that are still being made look the same. False where this MPICH has no such setting.
    """
    try:
        library = ctypes.CDLL("libmpi.so.12", mode=ctypes.DEFAULT_MODE)
    except OSError:
        return False
    provided, index, count = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    handle, value = ctypes.c_void_p(), ctypes.c_int(EAGAIN_RETRIES)
    # Each step needs the one before it.
    return bool(
        library.MPI_T_init_thread(0, ctypes.byref(provided)) == 0
        and library.MPI_T_cvar_get_index(b"MPIR_CVAR_CH4_OFI_MAX_EAGAIN_RETRY", ctypes.byref(index)) == 0
        and library.MPI_T_cvar_handle_alloc(index, None, ctypes.byref(handle), ctypes.byref(count)) == 0
        and library.MPI_T_cvar_write(handle, ctypes.byref(value)) == 0
    )
