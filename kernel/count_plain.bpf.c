// SPDX-License-Identifier: GPL-2.0-only
/* The receiver for kernels that interpret it, and then take no tail call: no echo, and no packets from fragments. */
#define COUNT_WITHOUT_TAIL_CALLS
#include "count.bpf.c"
