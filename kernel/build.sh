#!/bin/sh
# Compiles the XDP programs into nodes/bpf/. Needs Debian's clang, libbpf-dev and linux-libc-dev, on one machine only:
# the bytecode does not depend on the processor, and nodes get it with the package.
set -eu
cd "$(dirname "$0")"

headers=/usr/include/$(uname -m)-linux-gnu # asm/types.h
mkdir -p ../nodes/bpf
for source in *.bpf.c; do
  # -mcpu=v3 (kernel 5.1): 32-bit arithmetic, which halves many shifts. -g: BTF, which the tests compare.
  clang -target bpf -mcpu=v3 -O2 -g -Wall -Werror -I"$headers" -c "$source" -o "../nodes/bpf/${source%.bpf.c}.o.new"
  mv "../nodes/bpf/${source%.bpf.c}.o.new" "../nodes/bpf/${source%.bpf.c}.o"
done
