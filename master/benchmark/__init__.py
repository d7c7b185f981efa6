"""Parts that the benchmarks (search, rfc2544, y1564, calibrate) share: trials, loads, options, storage, output."""
