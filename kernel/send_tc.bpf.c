// SPDX-License-Identifier: GPL-2.0-only
/* The sender, compiled for the way out by clones of an skb. */
#define SEND_BY_TC
#include "send.bpf.c"
