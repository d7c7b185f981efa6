"""The lab's own UPF: a PFCP server (3GPP TS 29.244) whose rules an XDP program (kernel/upf.bpf.c) carries out."""
