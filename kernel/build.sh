#!/bin/sh
# Compiles the XDP programs into nodes/bpf/. Needs Debian's clang, libbpf-dev and linux-libc-dev, on one machine only:
# the bytecode does not depend on the processor, and nodes get it with the package.
set -eu
cd "$(dirname "$0")"

headers=/usr/include/$(uname -m)-linux-gnu # asm/types.h

compile() {
  # -mcpu=v3 (kernel 5.1): 32-bit arithmetic, which halves many shifts. -g: BTF, which the tests compare.
  # The prefix map: no path of this machine in the object.
  clang -target bpf -mcpu=v3 -O2 -g "-ffile-prefix-map=$PWD=." -Wall -Werror -I"$headers" -c "$1" -o "$2.new"
  mv "$2.new" "$2"
}

mkdir -p ../nodes/bpf
for source in *.bpf.c; do
  compile "$source" "../nodes/bpf/${source%.bpf.c}.o"
done
for source in ../tests/lab/*.bpf.c; do # the devices under test of the tests
  compile "$source" "${source%.bpf.c}.o"
done
