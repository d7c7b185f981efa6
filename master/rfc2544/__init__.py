"""RFC 2544's benchmarks of a device: throughput, latency, frame loss rate, back-to-back frames (RFC 9004)."""
