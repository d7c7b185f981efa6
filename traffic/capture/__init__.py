"""Capture files and filters: pcap and pcapng, libpcap expressions, classic BPF and eBPF."""
