// SPDX-License-Identifier: GPL-2.0-only
/* The sender by clones of an skb, without random payload: for Linux 5.10 to 5.16, which lack bpf_loop(). */
#define SEND_WITHOUT_NOISE
#include "send_tc.bpf.c"
