#!/bin/sh
# Compiles the benchmark's own XDP programs, as kernel/build.sh does the product's; the object is kept beside them.
set -eu
cd "$(dirname "$0")"

headers=/usr/include/$(uname -m)-linux-gnu # asm/types.h
clang -target bpf -mcpu=v3 -O2 -g -Wall -Werror -I"$headers" -c wire.bpf.c -o wire.o.new
mv wire.o.new wire.o
